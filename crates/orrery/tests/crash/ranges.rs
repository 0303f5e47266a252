//! Splits and merges the ranges of the container for as long as the server lives.
//!
//! Nobody else knows of it: every check of the others must hold whatever the ranges are, and wherever
//! the server was killed on the way from one to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use value::Value;

use crate::history::Dice;
use crate::{CONTAINER, Connection, Lost};

/// With so many ranges, two are merged.
const RANGES_MAX: usize = 5;

/// Cuts ranges anew until the server is gone.
pub(crate) async fn cut(port: u16, mut dice: Dice, cuts: Arc<AtomicU64>) {
    let Ok(mut connection) = Connection::open(port).await else { return };
    while cut_once(&mut connection, &mut dice).await.is_ok() {
        cuts.fetch_add(1, Ordering::SeqCst);
    }
}

async fn cut_once(connection: &mut Connection, dice: &mut Dice) -> Result<(), Lost> {
    let path = format!("{CONTAINER}/pkranges");
    let get = connection.call("GET", "pkranges", (CONTAINER, &path), &[], String::new());
    let (status, _, body) = get.await?;
    assert_eq!(status, 200, "{body}");
    let ranges = body.get("PartitionKeyRanges").and_then(Value::as_array).unwrap();
    let ids: Vec<&str> =
        ranges.iter().map(|range| range.get("id").and_then(Value::as_str).unwrap()).collect();
    let body = if ids.len() < RANGES_MAX {
        format!(r#"{{"split":"{}"}}"#, ids[dice.roll(ids.len() as u64) as usize])
    } else {
        let at = dice.roll(ids.len() as u64 - 1) as usize;
        format!(r#"{{"merge":["{}","{}"]}}"#, ids[at], ids[at + 1])
    };
    let post = connection.call("POST", "pkranges", (CONTAINER, &path), &[], body);
    let (status, _, body) = post.await?;
    assert_eq!(status, 200, "{body}");
    Ok(())
}
