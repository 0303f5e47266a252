//! Random transactions of every kind on one partition, all at once: what everybody saw must have come
//! of one after the other. What that means is said in [`crate::history`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use db::{Call, Conditions, Failure, Triggers};
use storage::RangeStore;
use value::{Object, ScriptKind, Value};

use crate::history::{Asked, Dice, History, LISTS, STEPS, Step, Transaction, numbers};
use crate::support::{self, BY_PK, Documents, create, json, key, patch_by, read};

const CLIENTS: u64 = 6;
const X: &str = r#"["x"]"#;

/// Appends the number of the document that was created to the lists that it names.
const NOTE: &str = "function () {
    const c = getContext().getCollection(), body = getContext().getResponse().getBody();
    for (const list of body.lists) {
        c.readDocument(c.getAltLink() + '/docs/' + list, (error, document) => {
            if (error) throw error;
            document.list.push(body.number);
            c.replaceDocument(document._self, document, (error) => { if (error) throw error; });
        });
    }
}";

struct Client<S: RangeStore> {
    documents: Arc<Documents<S>>,
    time: Arc<AtomicU64>,
    dice: Dice,
    next: u64,
    done: Vec<Transaction>,
    lost: u64,
}

impl<S: RangeStore> Client<S> {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    async fn act(&mut self) {
        let began = self.time.fetch_add(1, Ordering::SeqCst);
        let steps = match self.dice.roll(8) {
            0..4 => self.procedure().await,
            4 => self.single().await,
            5 => self.batch().await,
            6 => self.triggered().await,
            _ => Some(self.look()),
        };
        let ended = Some(self.time.fetch_add(1, Ordering::SeqCst));
        match steps {
            Some(steps) => self.done.push(Transaction { began, ended, steps }),
            None => self.lost += 1,
        }
    }

    /// Whether a script was committed; one that lost too many races was not.
    fn settled<T>(result: Result<T, Failure>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(failure) if failure.error.kind.status() == 449 => None,
            Err(failure) => panic!("{failure:?}"),
        }
    }

    async fn procedure(&mut self) -> Option<Vec<Step>> {
        let next = &mut self.next;
        let asked = Asked::random(&mut self.dice, &mut || {
            *next += 1;
            *next
        });
        let call = Call {
            procedure: "steps".to_owned(),
            parameters: asked.parameters("l"),
            headers: Vec::new(),
            is_logging: false,
        };
        let Documents { db, container, .. } = &*self.documents;
        let called = db.execute(container, Some(&key(X)), call, None).await;
        Some(asked.steps(Some(&json(&Self::settled(called)?.body.unwrap()))))
    }

    /// A patch shows what became of the document.
    async fn single(&mut self) -> Option<Vec<Step>> {
        let (list, number) = (self.dice.list(), self.number());
        let outcome = self.documents.must(X, appended(list, number)).await;
        let seen = list_of(&outcome.document.unwrap());
        Some(vec![Step::Append { list, number }, Step::Read { list, seen }])
    }

    async fn batch(&mut self) -> Option<Vec<Step>> {
        let [first, second, third] = [self.dice.list(), self.dice.list(), self.dice.list()];
        let [one, two] = [self.number(), self.number()];
        let writes = vec![
            read(&format!("l{third}")),
            appended(first, one),
            appended(second, two),
            read(&format!("l{third}")),
        ];
        let outcome = self.documents.batch(X, writes).await;
        let seen = |at: usize| list_of(outcome.results[at].document.as_ref().unwrap());
        Some(vec![
            Step::Read { list: third, seen: seen(0) },
            Step::Append { list: first, number: one },
            Step::Read { list: first, seen: seen(1) },
            Step::Append { list: second, number: two },
            Step::Read { list: second, seen: seen(2) },
            Step::Read { list: third, seen: seen(3) },
        ])
    }

    async fn triggered(&mut self) -> Option<Vec<Step>> {
        let (first, number) = (self.dice.list(), self.number());
        let second = (first + 1) % LISTS;
        let body = format!(
            r#"{{"id":"n{number}","pk":"x","number":{number},"lists":["l{first}","l{second}"]}}"#
        );
        let triggers = Triggers { pre: None, post: Some("note".to_owned()), headers: Vec::new() };
        let Documents { db, container, .. } = &*self.documents;
        let (at, conditions) = (key(X), Conditions::default());
        let written =
            db.write_with_triggers(container, Some(&at), create(&body), conditions, triggers).await;
        Self::settled(written)?;
        Some([first, second].map(|list| Step::Append { list, number }).to_vec())
    }

    fn look(&mut self) -> Vec<Step> {
        let list = self.dice.list();
        let read = self.documents.read(X, &format!("l{list}")).unwrap();
        vec![Step::Read { list, seen: list_of(&read.document.unwrap()) }]
    }
}

fn appended(list: usize, number: u64) -> db::Write {
    let operations = format!(r#"[{{"op":"add","path":"/list/-","value":{number}}}]"#);
    patch_by(&format!("l{list}"), &operations)
}

fn list_of(document: &value::Document) -> Vec<u64> {
    numbers(document.to_value().get("list").expect("has a list"))
}

async fn play<S: RangeStore>(mut documents: Documents<S>, seed: u64, rounds: usize) {
    for (kind, definition) in [
        (ScriptKind::Procedure, vec![("id", "steps"), ("body", STEPS)]),
        (
            ScriptKind::Trigger,
            vec![
                ("id", "note"),
                ("body", NOTE),
                ("triggerType", "Post"),
                ("triggerOperation", "Create"),
            ],
        ),
    ] {
        let definition: Object = definition
            .iter()
            .map(|(name, text)| ((*name).to_owned(), Value::from(*text)))
            .collect();
        documents.db.create_script(&documents.container, kind, &definition).await.unwrap();
        documents.container = documents.db.container("d", "c").unwrap();
    }
    for list in 0..LISTS {
        documents.must(X, create(&format!(r#"{{"id":"l{list}","pk":"x","list":[]}}"#))).await;
    }
    let (documents, time) = (Arc::new(documents), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|at| {
            let mut client = Client {
                documents: documents.clone(),
                time: time.clone(),
                dice: Dice(seed * CLIENTS + at),
                next: at * 1_000_000,
                done: Vec::new(),
                lost: 0,
            };
            tokio::spawn(async move {
                for _ in 0..rounds {
                    client.act().await;
                }
                client
            })
        })
        .collect();
    let mut history = History::default();
    let mut lost = 0;
    for client in clients {
        let client = client.await.unwrap();
        history.transactions.extend(client.done);
        lost += client.lost;
    }
    for list in 0..LISTS {
        let read = documents.read(X, &format!("l{list}")).unwrap();
        history.lists.push(list_of(&read.document.unwrap()));
    }
    assert!(history.transactions.len() as u64 > lost, "most are committed: {lost} are not");
    history.check().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    documents.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_after_the_other_in_memory() {
    for seed in 0..12 {
        play(Documents::new(BY_PK).await, seed, 20).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_after_the_other_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let clock = support::clock();
    let db = support::open(support::embedded(directory.path()), &clock).await;
    let container = support::container(&db, BY_PK).await;
    play(Documents { db, clock, container }, 100, 15).await;
}
