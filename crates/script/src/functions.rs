//! The user-defined functions of a container, for one query.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rquickjs::function::Args;
use rquickjs::{Ctx, Function, Type, Value as JsValue};
use value::Value;

use crate::engine::{Engine, Place, Sandbox, text};
use crate::{ErrorKind, Limits, ScriptError, Surroundings};

/// User-defined functions, ready to be called for row after row.
///
/// A query has one runtime for all its functions, made when the first of them is called: they come
/// from one container, so there is nothing to keep apart between them, and nothing that a runtime
/// per row would add. They see the language alone: no context, no documents but their arguments.
pub struct Functions {
    sources: BTreeMap<String, String>,
    limits: Limits,
    surroundings: Surroundings,
    engine: Mutex<Option<Ready>>,
}

impl Functions {
    /// The functions of these names and sources. Nothing is compiled yet.
    pub fn new(
        sources: impl IntoIterator<Item = (String, String)>,
        limits: Limits,
        surroundings: Surroundings,
    ) -> Functions {
        let sources = sources.into_iter().collect();
        Functions { sources, limits, surroundings, engine: Mutex::new(None) }
    }

    /// Whether there is a function of that name; names are case-sensitive.
    pub fn contains(&self, name: &str) -> bool {
        self.sources.contains_key(name)
    }

    /// Calls a function; `None` is undefined, on both sides.
    pub fn call(
        &self,
        name: &str,
        arguments: &[Option<Value>],
    ) -> Result<Option<Value>, ScriptError> {
        // The engine is as good after a panic as before: it holds no half-done work of ours.
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = match &mut *engine {
            Some(ready) => ready,
            empty => empty.insert(Ready::new(&self.limits, &self.surroundings)?),
        };
        ready.call(name, &self.sources, arguments)
    }
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self.sources.keys()).finish()
    }
}

/// The functions that are kept in the runtime: what describes errors, then what was compiled.
type Kept<'js> = Vec<Function<'js>>;

/// A runtime, and the places of its functions in [`Kept`].
struct Ready {
    engine: Engine,
    places: BTreeMap<String, usize>,
}

impl Ready {
    fn new(limits: &Limits, surroundings: &Surroundings) -> Result<Ready, ScriptError> {
        let engine = Engine::new(limits, surroundings)?;
        engine.with(|ctx| {
            let (sandbox, _) = engine.sandbox(&ctx)?;
            keep(&ctx, vec![sandbox.describe])
        })?;
        Ok(Ready { engine, places: BTreeMap::new() })
    }

    fn call(
        &mut self,
        name: &str,
        sources: &BTreeMap<String, String>,
        arguments: &[Option<Value>],
    ) -> Result<Option<Value>, ScriptError> {
        let Ready { engine, places } = self;
        engine.with(|ctx| {
            let describe = kept(&ctx, 0)?;
            let sandbox = Sandbox { describe, watch: Arc::clone(engine.watch()) };
            let place = match places.get(name) {
                Some(place) => *place,
                None => {
                    let place = compile(&ctx, &sandbox, name, sources)?;
                    places.insert(name.to_owned(), place);
                    place
                }
            };
            let function = kept(&ctx, place)?;
            let answer = apply(&ctx, &function, arguments);
            answer.map_err(|error| match error {
                Trouble::Engine(error) => sandbox.failure(&ctx, error).into_error(Place::Script),
                Trouble::Answer(text) => {
                    let text = format!("the function {name:?} returned {text}");
                    ScriptError::new(ErrorKind::Thrown { number: None }, text)
                }
            })
        })
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // What is kept must go before the runtime does.
        self.engine.with(|ctx| drop(ctx.remove_userdata::<Kept<'_>>()));
    }
}

fn compile<'js>(
    ctx: &Ctx<'js>,
    sandbox: &Sandbox<'js>,
    name: &str,
    sources: &BTreeMap<String, String>,
) -> Result<usize, ScriptError> {
    let Some(source) = sources.get(name) else {
        let text = format!("there is no user-defined function {name:?}");
        return Err(ScriptError::new(ErrorKind::Compile, text));
    };
    let function = sandbox.compile(ctx, name, source)?;
    let mut functions = *ctx.remove_userdata::<Kept<'js>>().ok().flatten().ok_or_else(lost)?;
    functions.push(function);
    let place = functions.len() - 1;
    keep(ctx, functions)?;
    Ok(place)
}

fn keep<'js>(ctx: &Ctx<'js>, functions: Kept<'js>) -> Result<(), ScriptError> {
    ctx.store_userdata(functions).map(drop).map_err(|_| lost())
}

fn kept<'js>(ctx: &Ctx<'js>, place: usize) -> Result<Function<'js>, ScriptError> {
    let functions = ctx.userdata::<Kept<'js>>().ok_or_else(lost)?;
    functions.get(place).cloned().ok_or_else(lost)
}

fn lost() -> ScriptError {
    ScriptError::new(ErrorKind::Engine, "the script engine lost its functions")
}

enum Trouble {
    Engine(rquickjs::Error),
    Answer(String),
}

impl From<rquickjs::Error> for Trouble {
    fn from(error: rquickjs::Error) -> Trouble {
        Trouble::Engine(error)
    }
}

fn apply<'js>(
    ctx: &Ctx<'js>,
    function: &Function<'js>,
    arguments: &[Option<Value>],
) -> Result<Option<Value>, Trouble> {
    let mut passed = Args::new(ctx.clone(), arguments.len());
    for argument in arguments {
        passed.push_arg(to_script(ctx, argument.as_ref())?)?;
    }
    from_script(ctx, function.call_arg(passed)?)
}

/// Simple values cross as they are, the others as text: what parses them knows which members a
/// script must not mistake for something else, such as `__proto__`.
fn to_script<'js>(ctx: &Ctx<'js>, value: Option<&Value>) -> rquickjs::Result<JsValue<'js>> {
    let ctx = ctx.clone();
    Ok(match value {
        None => JsValue::new_undefined(ctx),
        Some(Value::Null) => JsValue::new_null(ctx),
        Some(Value::Bool(flag)) => JsValue::new_bool(ctx, *flag),
        Some(Value::Number(number)) => JsValue::new_number(ctx, number.as_f64()),
        Some(Value::String(text)) => rquickjs::String::from_str(ctx, text)?.into_value(),
        Some(deep) => ctx.json_parse(deep.to_text())?,
    })
}

fn from_script<'js>(ctx: &Ctx<'js>, value: JsValue<'js>) -> Result<Option<Value>, Trouble> {
    Ok(match value.type_of() {
        Type::Null => Some(Value::Null),
        Type::Bool => value.as_bool().map(Value::Bool),
        // What JSON cannot say is undefined.
        Type::Int | Type::Float => {
            value.as_number().filter(|number| number.is_finite()).map(Value::from)
        }
        Type::String => text(value)?.map(Value::String),
        Type::Undefined | Type::Uninitialized | Type::Symbol => None,
        _ => match ctx.json_stringify(value)? {
            None => None,
            Some(json) => {
                let json = text(json.into_value())?.unwrap_or_default();
                let parsed = Value::parse(json.as_bytes());
                Some(parsed.map_err(|error| Trouble::Answer(format!("no value: {error}")))?)
            }
        },
    })
}
