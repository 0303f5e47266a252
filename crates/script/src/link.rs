//! The links by which scripts name their container and its documents.

use crate::Container;

/// A document of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link<'a> {
    /// By its resource id.
    Rid(&'a str),
    /// By its id.
    Id(&'a str),
}

/// The two links of a container, for checking what a script passes.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    self_link: String,
    alt_link: String,
}

impl Links {
    pub(crate) fn of(container: &Container) -> Links {
        Links { self_link: container.self_link.clone(), alt_link: container.alt_link.clone() }
    }

    /// Checks a link of a container; answers what is wrong with it.
    pub(crate) fn check_container(&self, link: &str) -> Result<(), String> {
        let parts: Vec<&str> = link.split('/').collect();
        let is_formed = match parts.as_slice() {
            [databases, _, containers, _] | [databases, _, containers, _, ""] => {
                databases.eq_ignore_ascii_case("dbs") && containers.eq_ignore_ascii_case("colls")
            }
            _ => false,
        };
        if !is_formed {
            return Err(format!("Invalid collection link: \"{link}\"."));
        }
        if link != self.self_link && link != self.alt_link {
            return Err(outside(link));
        }
        Ok(())
    }

    /// The document that a link names, or what is wrong with the link.
    pub(crate) fn document<'a>(&self, link: &'a str) -> Result<Link<'a>, String> {
        let parts: Vec<&str> = link.split('/').collect();
        let id = match parts.as_slice() {
            [databases, _, containers, _, documents, id]
            | [databases, _, containers, _, documents, id, ""]
                if databases.eq_ignore_ascii_case("dbs")
                    && containers.eq_ignore_ascii_case("colls")
                    && documents.eq_ignore_ascii_case("docs")
                    && !id.is_empty() =>
            {
                *id
            }
            _ => return Err(format!("Invalid document link: \"{link}\".")),
        };
        // The container's part must end where the documents' part begins: "colls/a" is no
        // beginning of "colls/ab/docs/x".
        let within = |container: &str| {
            let rest = link.strip_prefix(container.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        if within(&self.self_link) {
            Ok(Link::Rid(id))
        } else if within(&self.alt_link) {
            Ok(Link::Id(id))
        } else {
            Err(outside(link))
        }
    }
}

fn outside(link: &str) -> String {
    format!(
        "Function is not allowed to operate on resources outside current collection. \
         Make sure that the link provided, \"{link}\", belongs to current collection."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        Links { self_link: "dbs/AQ==/colls/AQI=/".to_owned(), alt_link: "dbs/d/colls/c".to_owned() }
    }

    #[test]
    fn containers() {
        let check = |link: &str, expected: Result<(), &str>| {
            let found = links().check_container(link);
            match expected {
                Ok(()) => assert_eq!(found, Ok(()), "{link}"),
                Err(part) => assert!(found.unwrap_err().starts_with(part), "{link}"),
            }
        };
        check("dbs/d/colls/c", Ok(()));
        check("dbs/AQ==/colls/AQI=/", Ok(()));
        check("dbs/d/colls/c/", Err("Function is not allowed"));
        check("dbs/AQ==/colls/AQI=", Err("Function is not allowed"));
        check("dbs/d/colls/other", Err("Function is not allowed"));
        check("dbs/d/colls/c/docs", Err("Invalid collection link"));
        check("dbs/d/docs/c", Err("Invalid collection link"));
        check("", Err("Invalid collection link"));
    }

    #[test]
    fn documents() {
        let check = |link: &str, expected: Result<Link<'_>, &str>| match expected {
            Ok(expected) => assert_eq!(links().document(link), Ok(expected), "{link}"),
            Err(part) => assert!(links().document(link).unwrap_err().starts_with(part), "{link}"),
        };
        check("dbs/d/colls/c/docs/x", Ok(Link::Id("x")));
        check("dbs/d/colls/c/docs/x/", Ok(Link::Id("x")));
        check("dbs/AQ==/colls/AQI=/docs/AQIDBA==/", Ok(Link::Rid("AQIDBA==")));
        check("dbs/d/colls/cc/docs/x", Err("Function is not allowed"));
        check("dbs/d/colls/c/docs/", Err("Invalid document link"));
        check("dbs/d/colls/c/docs/x/y", Err("Invalid document link"));
        check("dbs/d/colls/c", Err("Invalid document link"));
        check("x", Err("Invalid document link"));
    }
}
