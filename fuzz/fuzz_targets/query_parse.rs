//! Query text: what parses prints to a text that parses to the same; what does not says where.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match sql::parse(text) {
        Ok(tree) => {
            let printed = tree.to_string();
            let again = sql::parse(&printed).unwrap_or_else(|error| panic!("{printed}: {error:?}"));
            assert_eq!(again, tree, "{printed}");
            assert_eq!(again.to_string(), printed);
        }
        Err(error) => {
            assert!(error.start <= error.end, "{error:?}");
            assert!(error.end <= text.encode_utf16().count(), "{error:?}");
        }
    }
    // The condition of a patch is the end of a query.
    let _ = sql::parse_condition(text);
});
