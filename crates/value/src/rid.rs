//! Resource ids: the internal names of things, stable while user-visible names may change.
//!
//! A resource id is a few bytes, written in base64 with `-` for `/`. Clients take them apart, so the
//! layout is fixed: a child's id begins with its parent's, and what shares a length is told apart by
//! single bits. Users have the top bit of their number clear and containers have it set; children of
//! a container carry their type in the top four bits of their last byte. Numbers that would spill
//! into those bits do not come up (they are counted from 1) and are refused by an assertion.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::alphabet::Alphabet;
use base64::engine::general_purpose::{GeneralPurpose, PAD};

const ALPHABET: Alphabet =
    match Alphabet::new("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-") {
        Ok(alphabet) => alphabet,
        Err(_) => panic!("the alphabet has 64 distinct characters"),
    };
const BASE64: GeneralPurpose = GeneralPurpose::new(&ALPHABET, PAD);

/// The longest id there is, in bytes.
const LENGTH_MAX: usize = 16;

const CONTAINER_BIT: u32 = 1 << 31;
const ORDINAL_BITS: u32 = 60;

const DOCUMENT: u8 = 0x0;
const CONFLICT: u8 = 0x4;
const PARTITION_KEY_RANGE: u8 = 0x5;
const FUNCTION: u8 = 0x6;
const TRIGGER: u8 = 0x7;
const PROCEDURE: u8 = 0x8;

/// A text that is no resource id of the kind asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RidError(String);

impl RidError {
    fn new(text: &str) -> RidError {
        RidError(text.chars().take(40).collect())
    }
}

impl fmt::Display for RidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a resource id of this kind: {:?}", self.0)
    }
}

impl std::error::Error for RidError {}

/// A database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DatabaseRid(
    /// The number of the database, not zero.
    pub u32,
);

impl DatabaseRid {
    /// Reads the bytes; nothing if they are not of this kind.
    pub fn from_bytes(bytes: &[u8]) -> Option<DatabaseRid> {
        let number = u32::from_be_bytes(bytes.try_into().ok()?);
        (number != 0).then_some(DatabaseRid(number))
    }

    /// The bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }
}

/// A container of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerRid {
    /// The database it belongs to.
    pub database: DatabaseRid,
    /// The number of the container, below 2^31; the top bit is set in the bytes only.
    pub number: u32,
}

impl ContainerRid {
    /// The id of a container number, which is below 2^31.
    pub fn new(database: DatabaseRid, number: u32) -> ContainerRid {
        ContainerRid { database, number }
    }

    /// Reads the bytes; nothing if they are not of this kind.
    pub fn from_bytes(bytes: &[u8]) -> Option<ContainerRid> {
        let (database, number) = bytes.split_at_checked(4)?;
        let number = u32::from_be_bytes(number.try_into().ok()?);
        let database = DatabaseRid::from_bytes(database)?;
        let is_container = number & CONTAINER_BIT != 0;
        is_container.then_some(ContainerRid { database, number: number & !CONTAINER_BIT })
    }

    /// The bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        assert!(self.number < CONTAINER_BIT, "container numbers have 31 bits");
        let mut bytes = self.database.to_bytes();
        bytes.extend_from_slice(&(self.number | CONTAINER_BIT).to_be_bytes());
        bytes
    }
}

/// A user of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserRid {
    /// The database it belongs to.
    pub database: DatabaseRid,
    /// The number of the user, below 2^31.
    pub number: u32,
}

impl UserRid {
    /// The id of a user number, which is below 2^31.
    pub fn new(database: DatabaseRid, number: u32) -> UserRid {
        UserRid { database, number }
    }

    /// Reads the bytes; nothing if they are not of this kind.
    pub fn from_bytes(bytes: &[u8]) -> Option<UserRid> {
        let (database, number) = bytes.split_at_checked(4)?;
        let number = u32::from_be_bytes(number.try_into().ok()?);
        let database = DatabaseRid::from_bytes(database)?;
        (number & CONTAINER_BIT == 0).then_some(UserRid { database, number })
    }

    /// The bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        assert!(self.number < CONTAINER_BIT, "user numbers have 31 bits");
        let mut bytes = self.database.to_bytes();
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes
    }
}

/// A permission of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermissionRid {
    /// The user it belongs to.
    pub user: UserRid,
    /// The number of the permission.
    pub number: u64,
}

impl PermissionRid {
    /// The id of a permission number.
    pub fn new(user: UserRid, number: u64) -> PermissionRid {
        PermissionRid { user, number }
    }

    /// Reads the bytes; nothing if they are not of this kind.
    pub fn from_bytes(bytes: &[u8]) -> Option<PermissionRid> {
        let (user, number) = bytes.split_at_checked(8)?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        Some(PermissionRid { user: UserRid::from_bytes(user)?, number })
    }

    /// The bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.user.to_bytes();
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes
    }
}

/// A client encryption key of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientEncryptionKeyRid {
    /// The database it belongs to.
    pub database: DatabaseRid,
    /// The number of the key.
    pub number: u64,
}

impl ClientEncryptionKeyRid {
    /// The id of a key number.
    pub fn new(database: DatabaseRid, number: u64) -> ClientEncryptionKeyRid {
        ClientEncryptionKeyRid { database, number }
    }

    /// Reads the bytes; nothing if they are not of this kind.
    pub fn from_bytes(bytes: &[u8]) -> Option<ClientEncryptionKeyRid> {
        let (database, number) = bytes.split_at_checked(4)?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        Some(ClientEncryptionKeyRid { database: DatabaseRid::from_bytes(database)?, number })
    }

    /// The bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.database.to_bytes();
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes
    }
}

/// An offer, which is the throughput of a database or container. Three bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfferRid(
    /// The number of the offer, below 2^24.
    pub u32,
);

impl OfferRid {
    /// Reads the bytes; nothing if they are not of this kind.
    pub fn from_bytes(bytes: &[u8]) -> Option<OfferRid> {
        let [high, middle, low] = bytes.try_into().ok()?;
        Some(OfferRid(u32::from_be_bytes([0, high, middle, low])))
    }

    /// The bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        assert!(self.0 < 1 << 24, "offer numbers have 24 bits");
        self.0.to_be_bytes()[1..].to_vec()
    }
}

/// What a container has besides documents: the ids differ in nothing but the type.
macro_rules! child_of_container {
    ($(#[$doc:meta])* $name:ident, $nibble:expr) => {
        $(#[$doc])*
        ///
        /// Ascending ordinals are the order in which clients resume among equal sort keys.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            /// The container it belongs to.
            pub container: ContainerRid,
            /// Its place in the container, below 2^60.
            pub ordinal: u64,
        }

        impl $name {
            /// The id of an ordinal, which is below 2^60.
            pub fn new(container: ContainerRid, ordinal: u64) -> $name {
                $name { container, ordinal }
            }

            /// Reads the bytes; nothing if they are not of this kind.
            pub fn from_bytes(bytes: &[u8]) -> Option<$name> {
                let (container, nibble, ordinal) = child_from_bytes(bytes)?;
                (nibble == $nibble).then_some($name { container, ordinal })
            }

            /// The bytes.
            pub fn to_bytes(self) -> Vec<u8> {
                child_to_bytes(self.container, $nibble, self.ordinal)
            }
        }
    };
}

child_of_container!(
    /// A document of a container.
    DocumentRid,
    DOCUMENT
);
child_of_container!(
    /// A partition key range of a container.
    PartitionKeyRangeRid,
    PARTITION_KEY_RANGE
);
child_of_container!(
    /// A conflict of a container.
    ConflictRid,
    CONFLICT
);

fn child_from_bytes(bytes: &[u8]) -> Option<(ContainerRid, u8, u64)> {
    let (container, ordinal) = bytes.split_at_checked(8)?;
    let ordinal = u64::from_le_bytes(ordinal.try_into().ok()?);
    let nibble = (ordinal >> ORDINAL_BITS) as u8;
    Some((ContainerRid::from_bytes(container)?, nibble, ordinal & !(0xf << ORDINAL_BITS)))
}

fn child_to_bytes(container: ContainerRid, nibble: u8, ordinal: u64) -> Vec<u8> {
    assert!(ordinal >> ORDINAL_BITS == 0, "ordinals have 60 bits");
    let mut bytes = container.to_bytes();
    let tagged = ordinal | u64::from(nibble) << ORDINAL_BITS;
    bytes.extend_from_slice(&tagged.to_le_bytes());
    bytes
}

/// The kinds of scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScriptKind {
    /// A user-defined function.
    Function,
    /// A trigger.
    Trigger,
    /// A stored procedure.
    Procedure,
}

impl ScriptKind {
    fn nibble(self) -> u8 {
        match self {
            ScriptKind::Function => FUNCTION,
            ScriptKind::Trigger => TRIGGER,
            ScriptKind::Procedure => PROCEDURE,
        }
    }

    fn from_nibble(nibble: u8) -> Option<ScriptKind> {
        match nibble {
            FUNCTION => Some(ScriptKind::Function),
            TRIGGER => Some(ScriptKind::Trigger),
            PROCEDURE => Some(ScriptKind::Procedure),
            _ => None,
        }
    }
}

/// A stored procedure, trigger or user-defined function of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScriptRid {
    /// The container it belongs to.
    pub container: ContainerRid,
    /// What kind of script it is.
    pub kind: ScriptKind,
    /// Its place among the scripts of the kind, below 2^60.
    pub ordinal: u64,
}

impl ScriptRid {
    /// The id of an ordinal, which is below 2^60.
    pub fn new(container: ContainerRid, kind: ScriptKind, ordinal: u64) -> ScriptRid {
        ScriptRid { container, kind, ordinal }
    }

    /// Reads the bytes; nothing if they are not of this kind.
    pub fn from_bytes(bytes: &[u8]) -> Option<ScriptRid> {
        let (container, nibble, ordinal) = child_from_bytes(bytes)?;
        Some(ScriptRid { container, kind: ScriptKind::from_nibble(nibble)?, ordinal })
    }

    /// The bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        child_to_bytes(self.container, self.kind.nibble(), self.ordinal)
    }
}

/// Any resource id, told apart by length and bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rid {
    /// A database.
    Database(DatabaseRid),
    /// A container.
    Container(ContainerRid),
    /// A user.
    User(UserRid),
    /// A permission.
    Permission(PermissionRid),
    /// A document.
    Document(DocumentRid),
    /// A stored procedure, trigger or user-defined function.
    Script(ScriptRid),
    /// A partition key range.
    PartitionKeyRange(PartitionKeyRangeRid),
    /// A conflict.
    Conflict(ConflictRid),
    /// A client encryption key.
    ClientEncryptionKey(ClientEncryptionKeyRid),
    /// An offer.
    Offer(OfferRid),
}

impl Rid {
    /// Reads the bytes; nothing if they are not of this kind.
    pub fn from_bytes(bytes: &[u8]) -> Option<Rid> {
        match bytes.len() {
            3 => OfferRid::from_bytes(bytes).map(Rid::Offer),
            4 => DatabaseRid::from_bytes(bytes).map(Rid::Database),
            8 => ContainerRid::from_bytes(bytes)
                .map(Rid::Container)
                .or_else(|| UserRid::from_bytes(bytes).map(Rid::User)),
            12 => ClientEncryptionKeyRid::from_bytes(bytes).map(Rid::ClientEncryptionKey),
            _ => DocumentRid::from_bytes(bytes)
                .map(Rid::Document)
                .or_else(|| PartitionKeyRangeRid::from_bytes(bytes).map(Rid::PartitionKeyRange))
                .or_else(|| ScriptRid::from_bytes(bytes).map(Rid::Script))
                .or_else(|| ConflictRid::from_bytes(bytes).map(Rid::Conflict))
                .or_else(|| PermissionRid::from_bytes(bytes).map(Rid::Permission)),
        }
    }

    /// The bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Rid::Database(rid) => rid.to_bytes(),
            Rid::Container(rid) => rid.to_bytes(),
            Rid::User(rid) => rid.to_bytes(),
            Rid::Permission(rid) => rid.to_bytes(),
            Rid::Document(rid) => rid.to_bytes(),
            Rid::Script(rid) => rid.to_bytes(),
            Rid::PartitionKeyRange(rid) => rid.to_bytes(),
            Rid::Conflict(rid) => rid.to_bytes(),
            Rid::ClientEncryptionKey(rid) => rid.to_bytes(),
            Rid::Offer(rid) => rid.to_bytes(),
        }
    }
}

fn bytes_of_text(text: &str) -> Option<Vec<u8>> {
    if text.len() > LENGTH_MAX.div_ceil(3) * 4 {
        return None;
    }
    BASE64.decode(text).ok()
}

macro_rules! text_form {
    ($($name:ident),*) => {
        $(impl $name {
            /// Reads the text form.
            pub fn parse(text: &str) -> Result<$name, RidError> {
                bytes_of_text(text)
                    .and_then(|bytes| $name::from_bytes(&bytes))
                    .ok_or_else(|| RidError::new(text))
            }
        }

        impl FromStr for $name {
            type Err = RidError;

            fn from_str(text: &str) -> Result<$name, RidError> {
                $name::parse(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&BASE64.encode(self.to_bytes()))
            }
        })*
    };
}

text_form!(
    DatabaseRid,
    ContainerRid,
    UserRid,
    PermissionRid,
    DocumentRid,
    ScriptRid,
    PartitionKeyRangeRid,
    ConflictRid,
    ClientEncryptionKeyRid,
    OfferRid,
    Rid
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONTAINER: ContainerRid = ContainerRid { database: DatabaseRid(7), number: 9 };

    #[track_caller]
    fn check(rid: Rid, bytes: &[u8], text: &str) {
        assert_eq!(rid.to_bytes(), bytes);
        assert_eq!(rid.to_string(), text);
        assert_eq!(Rid::parse(text), Ok(rid));
    }

    #[test]
    fn layouts() {
        let database = DatabaseRid(0xb4b4_5100);
        check(Rid::Database(database), &[0xb4, 0xb4, 0x51, 0], "tLRRAA==");
        let container = ContainerRid::new(database, 0x2982_c0c2);
        let bytes = [0xb4, 0xb4, 0x51, 0, 0xa9, 0x82, 0xc0, 0xc2];
        check(Rid::Container(container), &bytes, "tLRRAKmCwMI=");

        let child = |last: u8| [&bytes[..], &[2, 0, 0, 0, 0, 0, 0, last]].concat();
        let range = PartitionKeyRangeRid::new(container, 2);
        check(Rid::PartitionKeyRange(range), &child(0x50), "tLRRAKmCwMICAAAAAAAAUA==");
        let document = DocumentRid::new(container, 2);
        check(Rid::Document(document), &child(0), "tLRRAKmCwMICAAAAAAAAAA==");
        let conflict = ConflictRid::new(container, 2);
        check(Rid::Conflict(conflict), &child(0x40), "tLRRAKmCwMICAAAAAAAAQA==");
        for (kind, last, text) in [
            (ScriptKind::Function, 0x60, "tLRRAKmCwMICAAAAAAAAYA=="),
            (ScriptKind::Trigger, 0x70, "tLRRAKmCwMICAAAAAAAAcA=="),
            (ScriptKind::Procedure, 0x80, "tLRRAKmCwMICAAAAAAAAgA=="),
        ] {
            check(Rid::Script(ScriptRid::new(container, kind, 2)), &child(last), text);
        }

        let user = UserRid::new(DatabaseRid(1), 2);
        check(Rid::User(user), &[0, 0, 0, 1, 0, 0, 0, 2], "AAAAAQAAAAI=");
        let permission = PermissionRid::new(user, 3);
        let bytes = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3];
        check(Rid::Permission(permission), &bytes, "AAAAAQAAAAIAAAAAAAAAAw==");
        let key = ClientEncryptionKeyRid::new(DatabaseRid(1), 2);
        let bytes = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
        check(Rid::ClientEncryptionKey(key), &bytes, "AAAAAQAAAAAAAAAC");
        check(Rid::Offer(OfferRid(0xfbffff)), &[0xfb, 0xff, 0xff], "+---");
    }

    #[test]
    fn ordinals_are_little_endian() {
        let document = DocumentRid::new(CONTAINER, 0x0102_0304_0506_0708);
        assert_eq!(document.to_bytes()[8..], [8, 7, 6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn other_texts_are_refused() {
        let document = DocumentRid::new(CONTAINER, 1).to_string();
        assert!(ContainerRid::parse(&document).is_err());
        assert!(PartitionKeyRangeRid::parse(&document).is_err());
        assert!(DocumentRid::parse(&CONTAINER.to_string()).is_err());
        assert!(UserRid::parse(&CONTAINER.to_string()).is_err());
        let schema =
            BASE64.encode([&CONTAINER.to_bytes()[..], &[0, 0, 0, 0, 0, 0, 0, 0x90]].concat());
        for text in ["", "AAAAAA==", "tLRRAA", "tLRRAA=", "tLRR AA==", "tLRRAB==", "a/b=", &schema]
        {
            assert!(Rid::parse(text).is_err(), "{text}");
        }
        assert!(Rid::parse(&"A".repeat(1 << 20)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let text = BASE64.encode(&bytes);
            if let Ok(rid) = Rid::parse(&text) {
                prop_assert_eq!(rid.to_bytes(), bytes);
                prop_assert_eq!(rid.to_string(), text);
            }
        }

        #[test]
        fn documents_sort_by_ordinal(left in 0..1u64 << 60, right in 0..1u64 << 60) {
            let (left_rid, right_rid) = (DocumentRid::new(CONTAINER, left), DocumentRid::new(CONTAINER, right));
            prop_assert_eq!(left_rid.cmp(&right_rid), left.cmp(&right));
            prop_assert_eq!(left_rid.to_string().parse::<DocumentRid>(), Ok(left_rid));
        }
    }
}
