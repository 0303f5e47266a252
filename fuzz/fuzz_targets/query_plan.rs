//! What is made of a query before it is run: plans for clients, which must be able to send them back,
//! and what indexes are told.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orrery_fuzz::asked::{options, parameters};
use query::{Features, PlanOptions};
use value::{PartitionKeyDefinition, PartitionKind, Path};

fn partition_key(kind: PartitionKind, paths: &[&str]) -> PartitionKeyDefinition {
    let paths = paths.iter().map(|path| Path::parse(path).unwrap()).collect();
    PartitionKeyDefinition { paths, kind, version: 2, system_key: false }
}

/// What clients replace before they send the text of a plan.
const PLACEHOLDER: &str = "{documentdb-formattableorderbyquery-filter}";

fuzz_target!(|text: &str| {
    let parameters = parameters();
    let Ok(prepared) = query::prepare(text, &parameters, &options()) else { return };
    let condition = prepared.condition().to_string();
    assert!(!condition.is_empty());
    let _ = (prepared.order(), prepared.advice(), prepared.touched(), prepared.filter_touched());
    if prepared.count().is_some() {
        prepared.answer_count(7).expect("a count can be told");
    }
    for definition in [
        partition_key(PartitionKind::Hash, &["/pk"]),
        partition_key(PartitionKind::MultiHash, &["/pk", "/o/x"]),
    ] {
        for (features, has_one_range, server_merges) in [
            (Features::all(), false, false),
            (Features::parse("OrderBy,Top"), false, false),
            (Features::parse("OrderBy,Top"), true, true),
        ] {
            let asked = PlanOptions {
                partition_key: &definition,
                key: None,
                features,
                has_one_range,
                server_merges,
            };
            let Ok(plan) = query::plan_for_clients(text, &parameters, &options(), &asked) else {
                continue;
            };
            if let Some(rewritten) = plan.rewritten {
                let sent = rewritten.replace(PLACEHOLDER, "true");
                if let Err(error) = query::prepare(&sent, &parameters, &options()) {
                    panic!("{sent}\n{error}");
                }
            }
        }
    }
});
