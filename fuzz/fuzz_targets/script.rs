//! Scripts: whatever they say, and however little memory they have, they end in order and do the
//! same when run again.
//!
//! The first byte says how to read the rest, the second how much memory is taken from the start. The
//! rest is the script: as text, or as pieces put together, one per byte.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libfuzzer_sys::fuzz_target;
use script::{
    Container, Functions, Host, HostError, Limits, Link, Outcome, Pace, Page, Procedure, Query,
    Read, Script, ScriptError, Surroundings, run_procedure,
};
use value::Value;

/// Small enough that an input runs out of memory now and then.
const LIMITS: Limits = Limits { memory_bytes_max: 2 << 20, ..Limits::STANDARD };

#[rustfmt::skip]
const PIECES: &[&str] = &[
    "v", "w", "x", "0", "1", "-1", "9e15", "NaN", "''", "'a'", "`${v}`", "null", "undefined", "this", "[]", "[v,w]", "{v,w}",
    "=", "==", "+", "-", "*", "**", "%", "<", "&&", "??", "?.", ".", ",", ";", ":", "?", "!", "...", "=>", "(", ")", "[", "]", "{", "}", "\n",
    "var ", "let ", "const ", "function f(a,b){", "async ", "await ", "yield ", "return ", "throw ", "new ", "delete ", "typeof ",
    "class A extends B{", "if(v)", "else ", "for(;;)", "for(var i=0;i<9;i++)", "for(x of v)", "for(x in v)", "while(v)", "try{",
    "}catch(e){", "}finally{", "switch(v){case 1:", "break;", "get x(){", "set x(a){", "static ", "super(v)", "arguments", "eval(",
    "Function(", "/(a+)+b/", ".test(", ".replace(", ".split(", "v=", "w=", "v=[v,w];", "v={v,w};", "v+=v;", "v.x", "v[w]", "v.length",
    "v.length=", "v.constructor", "v.__proto__=", "Object.prototype.x=", "Array.prototype[Symbol.iterator]=", "Object.defineProperty(",
    "Object.create(", "Object.assign(", "Object.keys(", "Reflect.construct(", "new Proxy(", "new Map(", "new Set(", "Symbol.iterator",
    "Array(", "Array.from(", ".push(", ".map(", ".filter(", ".sort(", ".slice(", ".splice(", ".concat(", ".flat(", ".fill(", ".indexOf(",
    ".join(", ".reduce(", ".call(", ".apply(", ".bind(", "'x'.repeat(", "String(", ".toString(", ".padEnd(", "1n", "Math.random()",
    "new Date(", "JSON.parse(", "JSON.stringify(", "v.toJSON=", "new Uint8Array(", "new ArrayBuffer(", "Promise.resolve(", "Promise.reject(",
    "new Promise(", ".then(", ".catch(", "new Error(", "e.stack", "getContext()", ".getRequest()", ".getResponse()", ".setBody(",
    ".appendBody(", ".getBody()", ".abort(", "console.log(", "__", "__.getSelfLink()", "__.createDocument(__.getSelfLink(),",
    "__.upsertDocument(__.getSelfLink(),", "__.readDocument(__.getAltLink()+'/docs/a',", "__.replaceDocument(__.getAltLink()+'/docs/a',",
    "__.deleteDocument(__.getAltLink()+'/docs/a',", "__.patchDocument(__.getAltLink()+'/docs/a',", "__.readDocuments(__.getSelfLink(),",
    "__.queryDocuments(__.getSelfLink(),'q',", "__.chain()", ".value(", "__.filter(", "__.sortBy(", "__.unwind(", "{id:'a'}", "{id:'b',v}",
    "{pageSize:1}", "(e,d,o)=>{v=d;w=o;});", "function(e,d){if(e)throw e;v=d;});", "(a)=>a", "async()=>{", "function*(){", ");", "});",
];

#[derive(Default)]
struct Documents(BTreeMap<String, String>);

impl Documents {
    fn store(&mut self, body: &str) -> Result<String, HostError> {
        let body = Value::parse(body.as_bytes());
        let body = body.map_err(|error| HostError::refused(400, &error.to_string()))?;
        let Some(id) = body.get("id").and_then(Value::as_str) else {
            return Err(HostError::refused(400, "the id is missing"));
        };
        let text = body.to_text();
        self.0.insert(id.to_owned(), text.clone());
        Ok(text)
    }

    fn at(&self, link: Link<'_>) -> Result<(String, String), HostError> {
        let (Link::Id(id) | Link::Rid(id)) = link;
        let found = self.0.get(id).ok_or_else(|| HostError::refused(404, "Resource Not Found"))?;
        Ok((id.to_owned(), found.clone()))
    }
}

impl Host for Documents {
    fn container(&self) -> Container {
        Container {
            self_link: "dbs/AQ==/colls/AQI=/".to_owned(),
            alt_link: "dbs/d/colls/c".to_owned(),
            partition_key: vec![vec!["pk".to_owned()]],
            quota_used: String::new(),
            quota_max: String::new(),
        }
    }

    fn read(&mut self, link: Link<'_>, _: Option<&str>) -> Result<Read, HostError> {
        self.at(link).map(|(_, text)| Read::Document(text))
    }

    fn query(&mut self, query: Query<'_>) -> Result<Page, HostError> {
        let from = query.continuation.map_or(Ok(0), str::parse::<usize>);
        let from = from.map_err(|_| HostError::refused(400, "Invalid Continuation Token"))?;
        let size = query.rows_max.unwrap_or(100) as usize;
        let rows: Vec<String> = self.0.values().skip(from).take(size).cloned().collect();
        let is_cut = !rows.is_empty() && from + rows.len() < self.0.len();
        let continuation = is_cut.then(|| (from + rows.len()).to_string());
        Ok(Page { rows, continuation })
    }

    fn create(&mut self, body: &str) -> Result<String, HostError> {
        self.store(body)
    }

    fn upsert(&mut self, body: &str, _: Option<&str>) -> Result<(bool, String), HostError> {
        Ok((true, self.store(body)?))
    }

    fn replace(
        &mut self,
        link: Link<'_>,
        body: &str,
        _: Option<&str>,
    ) -> Result<String, HostError> {
        self.at(link)?;
        self.store(body)
    }

    fn delete(&mut self, link: Link<'_>, _: Option<&str>) -> Result<(), HostError> {
        let (id, _) = self.at(link)?;
        self.0.remove(&id);
        Ok(())
    }

    fn patch(&mut self, link: Link<'_>, _: &str, _: Option<&str>) -> Result<String, HostError> {
        self.at(link).map(|(_, text)| text)
    }
}

/// Time that passes with every look at it, so that a second run is like the first.
fn surroundings() -> Surroundings {
    let looks = Arc::new(AtomicU64::new(0));
    let pace = move || match looks.fetch_add(1, Ordering::Relaxed) {
        0..200 => Pace::OnTime,
        200..300 => Pace::Closing,
        _ => Pace::Over,
    };
    Surroundings { pace: Arc::new(pace), ..Surroundings::standing(1_767_225_600_000, 1) }
}

fn run(source: &str, taken: usize) -> Result<Outcome, ScriptError> {
    let mut documents = Documents::default();
    documents.store(r#"{"id":"a","n":[1,2,3]}"#).expect("a document");
    let parameters = format!("[\"{}\"]", "y".repeat(taken));
    let procedure = Procedure { parameters: &parameters, headers: &[], is_logging: true };
    let script = Script { id: "fuzz", source };
    run_procedure(script, procedure, &mut documents, &LIMITS, &surroundings())
}

fuzz_target!(|input: &[u8]| {
    let [how, taken, rest @ ..] = input else { return };
    let text: String = if how & 1 == 0 {
        String::from_utf8_lossy(rest).into_owned()
    } else {
        rest.iter().map(|byte| PIECES[usize::from(*byte) % PIECES.len()]).collect()
    };
    let source = if how & 2 == 0 { text } else { format!("function (p, v, w, x) {{ {text} }}") };
    let taken = if how & 4 == 0 { 0 } else { usize::from(*taken) * 3_000 };
    let first = run(&source, taken);
    if let Err(error) = &first {
        assert!(matches!(error.status(), 400 | 408), "{error}");
    }
    if taken == 0 && !first.as_ref().is_err_and(|error| error.status() == 408) {
        assert_eq!(run(&source, taken), first);
    }
    if how & 8 != 0 {
        let functions = Functions::new([("f".to_owned(), source)], LIMITS, surroundings());
        for argument in [None, Some(Value::from("text")), Some(Value::from(1))] {
            let _ = functions.call("f", &[argument]);
        }
    }
});
