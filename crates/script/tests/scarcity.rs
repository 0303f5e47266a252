//! Memory that runs out at every point of a run: while the script is compiled, in its middle, and
//! while its error is described. The run fails in order, or succeeds.

mod support;

use script::{Functions, Limits, Procedure, Script, run_procedure};
use support::{Memory, standing};

const BUSY: &str = r#"async function busy(parameter) {
    const list = Array.from({length: 50}, (_, at) => ({at, text: `item ${at}`, nested: [at, {deep: parameter}]}));
    const map = new Map(list.map((item) => [item.text, item]));
    const text = JSON.stringify([...map.values()].sort((a, b) => b.at - a.at));
    const again = JSON.parse(text).filter(({at, ...rest}) => rest.text.replace(/item (\d+)/, '$1') == at);
    const create = (body) => new Promise((resolve, reject) => __.createDocument(__.getSelfLink(), body, (e, d) => e ? reject(e) : resolve(d)));
    try {
        for (let at = 0; at < 3; at += 1) await create({id: 'd' + at, again});
        await create({id: 'd0'});
    } catch (error) {
        __.chain().filter((d) => d.again.length).map((d) => d.id).value((e, ids) => { __.response.setBody({ids, number: error.number, now: new Date()}); });
    }
}"#;

#[test]
fn memory_runs_out_anywhere() {
    let limits = Limits { memory_bytes_max: 0, ..Limits::STANDARD };
    let mut successes = 0;
    let mut failures = 0;
    // A step that shares no factor with what is allocated in blocks, so that every place is met.
    for taken in (0..1_000_000).step_by(5_003) {
        let parameters = format!("[\"x\",\"{}\"]", "y".repeat(taken));
        let script = Script { id: "busy", source: BUSY };
        let procedure = Procedure { parameters: &parameters, headers: &[], is_logging: true };
        let mut host = Memory::default();
        match run_procedure(script, procedure, &mut host, &limits, &standing()) {
            Ok(_) => successes += 1,
            Err(error) => {
                assert!(error.status() == 400 || error.status() == 500, "{error}");
                assert!(!error.text().is_empty());
                failures += 1;
            }
        }
    }
    assert!(successes > 3 && failures > 50, "{successes} successes, {failures} failures");
}

#[test]
fn memory_runs_out_in_functions() {
    let limits = Limits { memory_bytes_max: 0, ..Limits::STANDARD };
    let source = "function (list) { var all = (globalThis.all = globalThis.all || []); all.push(list, JSON.stringify(all.slice(-3))); return {n: all.length, list}; }";
    let functions = Functions::new([("f".to_owned(), source.to_owned())], limits, standing());
    let argument = value::Value::parse(br#"[1,2,{"three":["four",5]}]"#).unwrap();
    let mut failures = 0;
    for _ in 0..3000 {
        if let Err(error) = functions.call("f", &[Some(argument.clone())]) {
            assert!(!error.text().is_empty());
            failures += 1;
        }
    }
    assert!(failures > 1000, "{failures} failures");
}
