//! Query text to syntax tree and back.
//!
//! [`parse`] turns the text of a query into one [`Query`] tree, and the tree prints back
//! (`Display`) as the service's normal form: every operator in parentheses, strings in double
//! quotes. Parsing a printed tree gives the tree again. Nothing here knows what a name means:
//! aliases, functions and their arguments are checked by `query`, which binds the tree.
//!
//! Texts come from the network. Their size, the nesting of their parts and the height of the tree
//! are bounded, so that neither the parser nor anything that later walks the tree by recursion
//! can run out of stack.

mod error;
mod lexer;
mod parser;
mod print;
mod tree;

pub use error::Error;
pub use parser::{DEPTH_MAX, HEIGHT_MAX, TEXT_BYTES_MAX, parse, parse_condition};
pub use tree::{
    BinaryOperator, Collection, Condition, Count, Direction, Expr, ExprKind, Item, Order, OrderBy,
    Page, Query, Selection, Source, Span, Step, SubqueryKind, UnaryOperator,
};
