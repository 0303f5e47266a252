//! B8 and B10: what happens to the time of an answer when there are many more documents.
//!
//! The few documents have a server and a directory of their own, so that neither shares anything
//! with the many, and both are asked in turns.

use std::path::Path;

use super::queries::orrery;
use super::{loading, queries};
use crate::measure::{Target, in_turns};
use crate::orders::{Orders, Scope};
use crate::question::{Question, Shape};
use crate::report::{Report, micros};
use crate::server::Server;
use crate::{Failure, Settings};

/// How few the few documents are.
const FEW: Orders = Orders { count: 10_000 };

pub(crate) async fn measure(
    report: &mut Report,
    settings: &Settings,
    directory: &Path,
    orders: Orders,
    server: &Server,
) -> Result<(), Failure> {
    eprintln!("loading {} documents to compare with", FEW.count);
    let small = Server::start(&directory.join("few")).await?;
    loading::fill(&small, FEW).await?;
    small.settle().await?;
    if settings.wants(&["B8"]) {
        queries::index(&small).await?;
    }
    let targets = [orrery(&small, FEW), orrery(server, orders)];
    if settings.wants(&["B8"]) {
        let point = Question::new(Shape::Point, Scope::Small, loading::ORDERS);
        for question in [point].into_iter().chain(Question::indexed()) {
            compare(report, settings, "B8", &targets, &question, "budget at most 1.5").await;
        }
    }
    if settings.wants(&["B10"]) {
        for scope in [Scope::Across, Scope::Large] {
            let question = Question::new(Shape::Count, scope, loading::ORDERS);
            match count(&targets, &question).await {
                Err(reason) => report.failure("B10", &question.name(), &reason),
                Ok(()) => {
                    let budget = "budget: does not grow";
                    compare(report, settings, "B10", &targets, &question, budget).await;
                }
            }
        }
    }
    small.stop().await
}

/// An error unless the counts are right.
async fn count(targets: &[Target], question: &Question) -> Result<(), Failure> {
    for target in targets {
        let (counted, there) =
            (target.number(question).await?, target.orders.in_scope(question.scope));
        if counted != there as f64 {
            return Err(format!("{counted} documents were counted, {there} are there").into());
        }
    }
    Ok(())
}

async fn compare(
    report: &mut Report,
    settings: &Settings,
    name: &str,
    targets: &[Target; 2],
    question: &Question,
    budget: &str,
) {
    let what = question.name();
    match in_turns(targets, question, 1, settings.measure / 2).await {
        Err(reason) => report.failure(name, &what, &reason),
        Ok(speeds) => {
            let [few, many] = [speeds[0].latency, speeds[1].latency];
            let figure = format!(
                "{} with {} documents, {} with {}: ratio {:.2}",
                micros(few),
                targets[0].orders.count,
                micros(many),
                targets[1].orders.count,
                many.as_secs_f64() / few.as_secs_f64()
            );
            eprintln!("{name} {what}: {figure}");
            report.row(name, &what, figure, budget);
        }
    }
}
