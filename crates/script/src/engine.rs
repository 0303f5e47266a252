//! One runtime of the JavaScript engine with its limits, and what comes out of it when it fails.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rquickjs::context::EvalOptions;
use rquickjs::context::intrinsic::{
    Date, Eval, Json, MapSet, Promise, Proxy, RegExp, RegExpCompiler, TypedArrays,
};
use rquickjs::{Context, Ctx, Function, Object, Runtime, Value};

use crate::own::{OWN_FILE, Own};
use crate::{ErrorKind, Limits, Pace, ScriptError, Surroundings};

/// What the engine has at least, so that it is never short of memory while it is set up: it would
/// not survive that.
const MEMORY_BYTES_MIN: usize = 1 << 20;

/// What a context has of the language. No performance counters, no weak references, no DOM: nothing
/// that the service lacks and that would tell two runs apart.
pub(crate) type Intrinsics =
    (Date, Eval, RegExpCompiler, RegExp, Json, Proxy, MapSet, TypedArrays, Promise);

/// A runtime with one context.
pub(crate) struct Engine {
    context: Context,
    watch: Arc<Watch>,
    surroundings: Surroundings,
}

impl Engine {
    pub(crate) fn new(limits: &Limits, surroundings: &Surroundings) -> Result<Engine, ScriptError> {
        let refused = |_| {
            let text = "the script engine needs more memory than it may use";
            ScriptError::new(ErrorKind::Engine, text)
        };
        let runtime = Runtime::new().map_err(refused)?;
        let memory_bytes_max = limits.memory_bytes_max.max(MEMORY_BYTES_MIN);
        runtime.set_memory_limit(memory_bytes_max);
        // Garbage in cycles is looked for when there can be some: most scripts have ended by then.
        runtime.set_gc_threshold(memory_bytes_max / 8);
        runtime.set_max_stack_size(limits.stack_bytes_max);
        let watch = Arc::new(Watch {
            pace: Arc::clone(&surroundings.pace),
            state: AtomicU32::new(RUNNING),
            grace: AtomicU32::new(0),
            asked: AtomicU32::new(0),
        });
        let watching = Arc::clone(&watch);
        runtime.set_interrupt_handler(Some(Box::new(move || watching.interrupts())));
        let watching = Arc::clone(&watch);
        let rejected = move |ctx: Ctx<'_>, _: Value<'_>, _: Value<'_>, _: bool| {
            watching.insist(&ctx);
        };
        runtime.set_host_promise_rejection_tracker(Some(Box::new(rejected)));
        let context = Context::custom::<Intrinsics>(&runtime).map_err(refused)?;
        Ok(Engine { context, watch, surroundings: surroundings.clone() })
    }

    /// Runs `work` with the context locked.
    pub(crate) fn with<T>(&self, work: impl FnOnce(Ctx<'_>) -> T) -> T {
        self.context.with(work)
    }

    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// Sets up what every script finds; answers also what our own scripts share.
    pub(crate) fn sandbox<'js>(
        &self,
        ctx: &Ctx<'js>,
    ) -> Result<(Sandbox<'js>, Object<'js>), ScriptError> {
        self.set_up(ctx).map_err(|_| {
            ctx.catch();
            if self.watch.is_over() {
                return ScriptError::timed_out();
            }
            let text = "the script engine needs more memory than it may use";
            ScriptError::new(ErrorKind::Engine, text)
        })
    }

    fn set_up<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<(Sandbox<'js>, Object<'js>)> {
        let native = Object::new(ctx.clone())?;
        let watch = Arc::clone(&self.watch);
        let tick = move |ctx: Ctx<'js>| if watch.is_over() { interrupt(&ctx) } else { Ok(()) };
        native.set("tick", Function::new(ctx.clone(), tick)?)?;
        let now_ms = Arc::clone(&self.surroundings.now_ms);
        // Exact: the largest time of JavaScript is below 2^53.
        native.set("now", Function::new(ctx.clone(), move || now_ms() as f64)?)?;
        let load_dates = |ctx: Ctx<'js>| Own::Dates.load(&ctx);
        native.set("loadDates", Function::new(ctx.clone(), load_dates)?)?;
        native.set("seed", self.surroundings.seed as u32)?;
        native.set("stream", (self.surroundings.seed >> 32) as u32)?;
        let make = Own::Sandbox.load(ctx)?;
        let tools: Object<'js> = make.call((native,))?;
        let describe = tools.get("describe")?;
        Ok((Sandbox { describe, watch: Arc::clone(&self.watch) }, tools))
    }
}

/// The language as scripts find it: compiles sources and describes what they throw.
pub(crate) struct Sandbox<'js> {
    pub(crate) describe: Function<'js>,
    pub(crate) watch: Arc<Watch>,
}

impl<'js> Sandbox<'js> {
    /// The function that a source is.
    ///
    /// The service takes the text for an expression. A text that is not one may still be a script
    /// with several functions, the first of which is meant.
    pub(crate) fn compile(
        &self,
        ctx: &Ctx<'js>,
        id: &str,
        source: &str,
    ) -> Result<Function<'js>, ScriptError> {
        if source.contains('\0') {
            // The engine takes C strings.
            let text = "Encountered exception while compiling Javascript. Exception = SyntaxError: \
                        the source contains a NUL character";
            return Err(ScriptError::new(ErrorKind::Compile, text));
        }
        let expression = format!("({source}\n)");
        let value: Value<'js> = match evaluate(ctx, id, &expression) {
            Ok(value) => value,
            Err(error) => {
                let first = self.failure(ctx, error);
                if !first.is_syntax {
                    return Err(first.into_error(Place::Compile));
                }
                self.compile_script(ctx, id, source, &first)?
            }
        };
        value.into_function().ok_or_else(|| {
            let text = "Encountered exception while compiling Javascript. Exception = TypeError: \
                        the body of a script must be a function";
            ScriptError::new(ErrorKind::Compile, text)
        })
    }

    fn compile_script(
        &self,
        ctx: &Ctx<'js>,
        id: &str,
        source: &str,
        first: &Failure,
    ) -> Result<Value<'js>, ScriptError> {
        let before = ctx.globals().keys::<String>().count();
        let last = match evaluate(ctx, id, source) {
            Ok(last) => last,
            Err(error) => {
                let second = self.failure(ctx, error);
                // The reading that got further is the one that was meant.
                let further = if second.is_syntax && first.place() > second.place() {
                    first
                } else {
                    &second
                };
                return Err(further.clone().into_error(Place::Compile));
            }
        };
        let declared = ctx.globals().props::<String, Value<'js>>().skip(before);
        let function = declared.flatten().map(|(_, value)| value).find(Value::is_function);
        Ok(function.unwrap_or(last))
    }

    /// What the engine says about a failure. Asks the script's own error, within bounds.
    pub(crate) fn failure(&self, ctx: &Ctx<'js>, error: rquickjs::Error) -> Failure {
        let thrown = match error {
            rquickjs::Error::Exception => ctx.catch(),
            other => return Failure::plain(format!("Error: {other}")),
        };
        self.describe(ctx, thrown)
    }

    /// What a thrown value says.
    pub(crate) fn describe(&self, ctx: &Ctx<'js>, thrown: Value<'js>) -> Failure {
        if self.watch.is_over() {
            return Failure { is_over: true, ..Failure::plain(String::new()) };
        }
        let is_syntax = thrown.as_exception().is_some_and(|exception| {
            exception.as_object().get::<_, String>("name").is_ok_and(|name| name == "SyntaxError")
        });
        let state = self.watch.begin_grace();
        let described = self.ask(thrown);
        self.watch.end_grace(state);
        let mut failure = described.unwrap_or_else(|_| {
            ctx.catch();
            Failure::plain("an error that cannot be shown".to_owned())
        });
        failure.is_syntax = is_syntax;
        failure
    }

    fn ask(&self, thrown: Value<'js>) -> rquickjs::Result<Failure> {
        let found: Object<'js> = self.describe.call((thrown,))?;
        let number: Option<f64> = found.get("number")?;
        // Only what fits the header becomes a sub-status.
        let number = number.filter(|number| number.fract() == 0.0);
        let number = number.filter(|number| (0.0..=f64::from(u32::MAX)).contains(number));
        Ok(Failure {
            text: text(found.get("text")?)?.unwrap_or_default(),
            stack: text(found.get("stack")?)?.unwrap_or_default(),
            number: number.map(|number| number as u32),
            is_syntax: false,
            is_over: false,
        })
    }
}

/// Which part of a script failed, as the words of the error tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Compile,
    Script,
    Callback,
}

/// A failure, as the engine describes it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    text: String,
    stack: String,
    number: Option<u32>,
    is_syntax: bool,
    is_over: bool,
}

impl Failure {
    fn plain(text: String) -> Failure {
        Failure { text, stack: String::new(), number: None, is_syntax: false, is_over: false }
    }

    /// The text of what was thrown, such as `Error: taken`.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Line and column of the first frame.
    fn place(&self) -> (u32, u32) {
        let first = self.stack.lines().next().unwrap_or_default();
        let mut numbers = first.trim_end_matches(')').rsplit(':');
        let column = numbers.next().and_then(|text| text.parse().ok());
        let line = numbers.next().and_then(|text| text.parse().ok());
        (line.unwrap_or(0), column.unwrap_or(0))
    }

    pub(crate) fn into_error(self, place: Place) -> ScriptError {
        if self.is_over {
            return ScriptError::timed_out();
        }
        let doing = match place {
            Place::Compile => "compiling Javascript",
            Place::Script => "executing Javascript",
            Place::Callback => "executing function",
        };
        let mut text = format!("Encountered exception while {doing}. Exception = {}", self.text);
        let frames = self.stack.lines().map(str::trim).filter(|frame| !is_own_frame(frame));
        let frames: String = frames.map(|frame| format!("\n   {frame}")).collect();
        if !frames.is_empty() {
            text.push_str(&format!("\r\nStack trace: {}{frames}", self.text));
        }
        let kind = match place {
            Place::Compile if self.is_syntax => ErrorKind::Compile,
            _ => ErrorKind::Thrown { number: self.number },
        };
        ScriptError::new(kind, text)
    }
}

/// Whether a line of a stack trace is about our own scripts, or about what they call.
fn is_own_frame(frame: &str) -> bool {
    frame.contains(OWN_FILE) || matches!(frame, "at construct (native)" | "at apply (native)")
}

/// Evaluates a text as a script of the user.
fn evaluate<'js>(ctx: &Ctx<'js>, id: &str, source: &str) -> rquickjs::Result<Value<'js>> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(format!("{}.js", id.replace('\0', "")));
    ctx.eval_with_options(source, options)
}

/// Ends the script, by an exception that it cannot catch: only an interrupted engine has those, so
/// it is given something to interrupt.
pub(crate) fn interrupt(ctx: &Ctx<'_>) -> rquickjs::Result<()> {
    let mut options = EvalOptions::default();
    options.filename = Some(OWN_FILE.to_owned());
    ctx.eval_with_options("for (;;);", options)
}

/// The text of a JavaScript string, where there is one. Lone surrogates, which UTF-8 cannot say,
/// become replacement characters.
pub(crate) fn text(value: Value<'_>) -> rquickjs::Result<Option<String>> {
    let Some(string) = value.into_string() else { return Ok(None) };
    match string.to_string() {
        Ok(text) => Ok(Some(text)),
        Err(rquickjs::Error::Utf8(_)) => {
            Ok(Some(String::from_utf8_lossy(string.to_cstring()?.as_bytes()).into_owned()))
        }
        Err(error) => Err(error),
    }
}

const RUNNING: u32 = 0;
/// The script asked to end.
const ABORTED: u32 = 1;
/// The deadline has passed.
const OVER: u32 = 2;
/// The script has ended; its error is asked what it is.
const GRACE: u32 = 3;

/// How often the engine may ask for leave to go on, about ten thousand steps apart, while an error
/// of the script describes itself.
const GRACE_MAX: u32 = 100;

/// Decides when the engine must stop.
pub(crate) struct Watch {
    pace: Arc<dyn Fn() -> Pace + Send + Sync>,
    state: AtomicU32,
    grace: AtomicU32,
    /// How often the engine has asked for leave to go on.
    asked: AtomicU32,
}

/// The engine asks for leave once in so many steps; found out when it is first needed.
static STEPS: OnceLock<u32> = OnceLock::new();

/// It is not waited for longer than this.
const STEPS_MAX: u32 = 1_000_000;

impl Watch {
    fn interrupts(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.state.load(Ordering::Relaxed) == GRACE {
            return self.grace.fetch_add(1, Ordering::Relaxed) >= GRACE_MAX;
        }
        self.must_end()
    }

    /// Whether the script has to end now.
    pub(crate) fn must_end(&self) -> bool {
        self.is_over() || self.is_aborted()
    }

    /// Whether the deadline has passed; it stays passed.
    pub(crate) fn is_over(&self) -> bool {
        if self.state.load(Ordering::Relaxed) == RUNNING && (self.pace)() == Pace::Over {
            self.state.store(OVER, Ordering::Relaxed);
        }
        self.state.load(Ordering::Relaxed) == OVER
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ABORTED
    }

    /// Lets the engine ask for leave at its very next step, if the script has to end.
    ///
    /// Nothing catches an interruption but a promise: what is thrown while one is made rejects it, and
    /// the script goes on behind it. The engine would ask again after ten thousand steps, which may be
    /// at the same place of a loop, and then for ever. So when a promise is rejected the steps until
    /// then are used up. A call is a step, whether it can be made or not, and does nothing else.
    fn insist(&self, ctx: &Ctx<'_>) {
        let is_ending = match self.state.load(Ordering::Relaxed) {
            GRACE => self.grace.load(Ordering::Relaxed) > GRACE_MAX,
            state => state != RUNNING,
        };
        if !is_ending {
            return;
        }
        let Ok(step) = Function::new(ctx.clone(), || ()) else {
            ctx.catch();
            return;
        };
        let asks = || {
            let before = self.asked.load(Ordering::Relaxed);
            if step.call::<_, ()>(()).is_err() {
                ctx.catch();
            }
            self.asked.load(Ordering::Relaxed) != before
        };
        let until_asked = || (1..STEPS_MAX).find(|_| asks());
        until_asked();
        let steps = *STEPS.get_or_init(|| until_asked().unwrap_or(STEPS_MAX));
        for _ in 1..steps {
            asks();
        }
    }

    /// Whether no more work should be begun.
    pub(crate) fn is_closing(&self) -> bool {
        (self.pace)() != Pace::OnTime
    }

    pub(crate) fn abort(&self) {
        if self.state.load(Ordering::Relaxed) == RUNNING {
            self.state.store(ABORTED, Ordering::Relaxed);
        }
    }

    fn begin_grace(&self) -> u32 {
        self.grace.store(0, Ordering::Relaxed);
        self.state.swap(GRACE, Ordering::Relaxed)
    }

    fn end_grace(&self, state: u32) {
        self.state.store(state, Ordering::Relaxed);
    }
}
