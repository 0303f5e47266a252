//! Procedures in the kill loop: money that must not be made or lost, and lists that must tell one
//! story.
//!
//! Tellers move money between the accounts of one partition, each transfer in a procedure that also
//! counts the total. Scribes append to several lists at once and read them; every round has lists of
//! its own, and what was seen before the kill is held against what is there after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use value::Value;

use crate::history::{Asked, Dice, History, LISTS, STEPS, Transaction, numbers};
use crate::{CONTAINER, Connection, Lost};

const ACCOUNTS: u64 = 5;
const BALANCE: i64 = 100;
const BANK: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["bank"]"#);
const LIBRARY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["library"]"#);

/// Counts the money of all, then moves some of it.
const TRANSFER: &str = "function (from, to, amount, expected) {
    const c = getContext().getCollection();
    const link = (id) => c.getAltLink() + '/docs/' + id;
    c.queryDocuments(c.getSelfLink(), 'SELECT VALUE SUM(a.n) FROM a', (error, [total]) => {
        if (total !== expected) getContext().abort(new Error('the total is ' + total));
        c.readDocument(link(from), (error, account) => {
            if (account.n < amount) throw new Error(4444, 'not enough');
            account.n -= amount;
            c.replaceDocument(account._self, account, {etag: account._etag}, (error) => {
                if (error) throw error;
                c.readDocument(link(to), (error, account) => {
                    account.n += amount;
                    c.replaceDocument(account._self, account, {etag: account._etag});
                });
            });
        });
    });
}";

impl Connection {
    async fn create(&mut self, kind: &str, key: &[(&str, &str)], body: String) {
        let path = format!("{CONTAINER}/{kind}");
        let call = self.call("POST", kind, (CONTAINER, &path), key, body);
        let (status, _, body) = call.await.expect("the server answers");
        assert_eq!(status, 201, "{body}");
    }

    async fn execute(
        &mut self,
        procedure: &str,
        key: (&str, &str),
        parameters: String,
    ) -> Result<(u16, Value), Lost> {
        let path = format!("{CONTAINER}/sprocs/{procedure}");
        let (status, _, body) =
            self.call("POST", "sprocs", (&path, &path), &[key], parameters).await?;
        Ok((status.as_u16(), body))
    }

    async fn document(&mut self, key: (&str, &str), id: &str) -> Value {
        let path = format!("{CONTAINER}/docs/{id}");
        let headers = [key];
        let call = self.call("GET", "docs", (&path, &path), &headers, String::new());
        let (status, _, body) = call.await.expect("the server answers");
        assert_eq!(status, 200, "{id}: {body}");
        body
    }
}

/// Stores the procedures and opens the accounts.
pub(crate) async fn prepare(connection: &mut Connection) {
    for (id, source) in [("transfer", TRANSFER), ("steps", STEPS)] {
        let body = format!(r#"{{"id":"{id}","body":{}}}"#, Value::from(source).to_text());
        connection.create("sprocs", &[], body).await;
    }
    for account in 0..ACCOUNTS {
        let id = format!("account{account}");
        let body = format!(r#"{{"id":"{id}","u":"{id}","pk":"bank","n":{BALANCE}}}"#);
        connection.create("docs", &[BANK], body).await;
    }
}

/// The money is all there.
pub(crate) async fn check_total(connection: &mut Connection) {
    let mut total = 0;
    for account in 0..ACCOUNTS {
        let body = connection.document(BANK, &format!("account{account}")).await;
        total += body.get("n").and_then(Value::as_i64).expect("has a balance");
    }
    assert_eq!(total, ACCOUNTS as i64 * BALANCE);
}

/// Moves money until the server is gone.
pub(crate) async fn transfer(port: u16, mut dice: Dice, acknowledged: Arc<AtomicU64>) {
    let Ok(mut connection) = Connection::open(port).await else { return };
    loop {
        let (from, amount) = (dice.roll(ACCOUNTS), 1 + dice.roll(30));
        let to = (from + 1 + dice.roll(ACCOUNTS - 1)) % ACCOUNTS;
        let total = ACCOUNTS as i64 * BALANCE;
        let parameters = format!(r#"["account{from}","account{to}",{amount},{total}]"#);
        match connection.execute("transfer", BANK, parameters).await {
            Err(Lost) => return,
            Ok((200, _)) => acknowledged.fetch_add(1, Ordering::SeqCst),
            Ok((400, body)) if body.to_text().contains("not enough") => continue,
            Ok((status, body)) => panic!("{status}: {body}"),
        };
    }
}

/// The lists of one round, and what happened to them.
#[derive(Clone)]
pub(crate) struct Lists {
    prefix: String,
    time: Arc<AtomicU64>,
}

impl Lists {
    /// Empty lists.
    pub(crate) async fn start(connection: &mut Connection, round: u64) -> Self {
        let prefix = format!("round{round}-");
        for list in 0..LISTS {
            let id = format!("{prefix}{list}");
            let body = format!(r#"{{"id":"{id}","u":"{id}","pk":"library","list":[]}}"#);
            connection.create("docs", &[LIBRARY], body).await;
        }
        Self { prefix, time: Arc::default() }
    }

    /// Appends and reads until the server is gone. The last one was under way.
    pub(crate) async fn write(
        self,
        port: u16,
        mut dice: Dice,
        acknowledged: Arc<AtomicU64>,
    ) -> Vec<Transaction> {
        let mut done = Vec::new();
        let Ok(mut connection) = Connection::open(port).await else { return done };
        let mut next = dice.0 * 1_000_000;
        loop {
            let asked = Asked::random(&mut dice, &mut || {
                next += 1;
                next
            });
            let began = self.time.fetch_add(1, Ordering::SeqCst);
            let parameters = asked.parameters(&self.prefix);
            match connection.execute("steps", LIBRARY, parameters).await {
                Err(Lost) => {
                    done.push(Transaction { began, ended: None, steps: asked.steps(None) });
                    return done;
                }
                Ok((200, body)) => {
                    let ended = Some(self.time.fetch_add(1, Ordering::SeqCst));
                    done.push(Transaction { began, ended, steps: asked.steps(Some(&body)) });
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                Ok((status, body)) => panic!("{status}: {body}"),
            }
        }
    }

    /// The lists as they are now explain everything that was seen.
    pub(crate) async fn check(&self, connection: &mut Connection, transactions: Vec<Transaction>) {
        let mut history = History { transactions, lists: Vec::new() };
        for list in 0..LISTS {
            let body = connection.document(LIBRARY, &format!("{}{list}", self.prefix)).await;
            history.lists.push(numbers(body.get("list").expect("has a list")));
        }
        history.check().unwrap_or_else(|wrong| panic!("{}: {wrong}", self.prefix));
    }
}
