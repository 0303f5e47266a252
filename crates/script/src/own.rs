//! Our own scripts: what gives a fresh context its sandbox and its API.
//!
//! To parse them is many times the work of running them, so they are parsed once in the life of the
//! process, and every context loads what came of that. Only what this engine wrote in this process,
//! from the texts named here, is ever loaded; what a client sent is always parsed.
//!
//! They are modules, because that is what the engine can write and load. Each exports one function
//! under the name `part`, which takes that name away when it is called: a script that imports a
//! module which is loaded already finds nothing in it.

use std::sync::OnceLock;

use rquickjs::loader::Loader;
use rquickjs::loader::bundle::{Bundle, ScaBundleData};
use rquickjs::{Context, Ctx, Function, Module, Runtime, WriteOptions};

use crate::engine::Intrinsics;

/// How the name of each of our scripts starts, in stack traces.
pub(crate) const OWN_FILE: &str = "<orrery>";

/// One of our scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Sandbox,
    Dates,
    Context,
    Queries,
}

impl Own {
    const ALL: [Own; 4] = [Own::Sandbox, Own::Dates, Own::Context, Own::Queries];

    fn name(self) -> &'static str {
        match self {
            Own::Sandbox => "<orrery>/sandbox",
            Own::Dates => "<orrery>/dates",
            Own::Context => "<orrery>/context",
            Own::Queries => "<orrery>/queries",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Own::Sandbox => include_str!("js/sandbox.js"),
            Own::Dates => include_str!("js/dates.js"),
            Own::Context => include_str!("js/context.js"),
            Own::Queries => include_str!("js/queries.js"),
        }
    }

    /// The function that the script is. A context has it once.
    pub(crate) fn load<'js>(self, ctx: &Ctx<'js>) -> rquickjs::Result<Function<'js>> {
        let declared = Bundle(compiled()?).load(ctx, self.name(), None)?;
        let (module, _) = declared.eval()?;
        module.get("part")
    }
}

type Compiled = ScaBundleData<&'static [u8]>;

/// What the engine made of our scripts.
fn compiled() -> rquickjs::Result<Compiled> {
    static COMPILED: OnceLock<Compiled> = OnceLock::new();
    if let Some(compiled) = COMPILED.get() {
        return Ok(compiled);
    }
    let made = compile()?;
    // What the binding loads from must live as long as the process; this is made once.
    let keep = |(own, bytes): (Own, Vec<u8>)| (own.name(), &*bytes.leak());
    Ok(COMPILED.get_or_init(|| made.into_iter().map(keep).collect::<Vec<_>>().leak()))
}

fn compile() -> rquickjs::Result<Vec<(Own, Vec<u8>)>> {
    let runtime = Runtime::new()?;
    let context = Context::custom::<Intrinsics>(&runtime)?;
    context.with(|ctx| {
        let compile = |own: Own| {
            let module = Module::declare(ctx.clone(), own.name(), own.source())?;
            // The names of files and functions stay: stack traces are told apart by them.
            let options = WriteOptions { strip_source: true, ..WriteOptions::default() };
            Ok((own, module.write(options)?))
        };
        Own::ALL.into_iter().map(compile).collect()
    })
}
