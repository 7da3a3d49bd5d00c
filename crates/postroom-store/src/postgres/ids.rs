//! Ids of messages as parameters and in answers. Whether the database has them as uuids or as texts
//! is told by the types of a statement, so the same statement works with either.
//!
//! Where the database has uuids, a text that spells one is written as that uuid. Any other text is
//! written as NULL, which equals no id: such a message is not found.

use bytes::{BufMut as _, BytesMut};
use postroom_core::{IdPrefix, MessageId};
use std::borrow::Borrow;
use std::error::Error as StdError;
use std::fmt::Debug;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use tokio_postgres::{Error, Row};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

type Written = Result<IsNull, Box<dyn StdError + Sync + Send>>;

/// One id. A list of them is an array.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Id<M = MessageId>(pub(super) M);

impl<M: Borrow<MessageId> + Debug> ToSql for Id<M> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Written {
        let id = self.0.borrow();
        if *ty == Type::UUID {
            return write_uuid(id.as_uuid(), out);
        }
        match id {
            MessageId::Uuid(uuid) => write_as_text(*uuid, out),
            MessageId::Text(text) => out.put_slice(text.as_bytes()),
        }
        Ok(IsNull::No)
    }

    accepts!(UUID, TEXT, VARCHAR);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let id = match *ty {
            Type::UUID => Uuid::from_sql(ty, raw)?.into(),
            _ => MessageId::trusted(<&str>::from_sql(ty, raw)?),
        };
        Ok(Self(id))
    }

    accepts!(UUID, TEXT, VARCHAR);
}

/// Where a look through all ids, in their order, goes on: after this one. `None` is the beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct After(pub(super) Option<MessageId>);

impl ToSql for After {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Written {
        match &self.0 {
            Some(id) => Id(id).to_sql(ty, out),
            None if *ty == Type::UUID => write_uuid(Some(Uuid::nil()), out),
            None => Ok(IsNull::No),
        }
    }

    accepts!(UUID, TEXT, VARCHAR);
    to_sql_checked!();
}

/// The lowest id that begins so.
#[derive(Debug)]
pub(super) struct Lowest<'a>(pub(super) &'a IdPrefix);

impl ToSql for Lowest<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Written {
        if *ty == Type::UUID {
            return write_uuid(self.0.uuids().map(|uuids| *uuids.start()), out);
        }
        out.put_slice(self.0.as_str().as_bytes());
        Ok(IsNull::No)
    }

    accepts!(UUID, TEXT, VARCHAR);
    to_sql_checked!();
}

/// The highest id that begins so. Of texts, where these are in the order of their bytes.
#[derive(Debug)]
pub(super) struct Highest<'a>(pub(super) &'a IdPrefix);

impl ToSql for Highest<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Written {
        if *ty == Type::UUID {
            return write_uuid(self.0.uuids().map(|uuids| *uuids.end()), out);
        }
        out.put_slice(self.0.as_str().as_bytes());
        out.put_slice(char::MAX.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(IsNull::No)
    }

    accepts!(UUID, TEXT, VARCHAR);
    to_sql_checked!();
}

fn write_uuid(uuid: Option<Uuid>, out: &mut BytesMut) -> Written {
    let Some(uuid) = uuid else { return Ok(IsNull::Yes) };
    out.put_slice(uuid.as_bytes());
    Ok(IsNull::No)
}

fn write_as_text(uuid: Uuid, out: &mut BytesMut) {
    let mut written = [0; Hyphenated::LENGTH];
    out.put_slice(uuid.as_hyphenated().encode_lower(&mut written).as_bytes());
}

/// The id in a column of a row.
pub(super) fn id(row: &Row, index: usize) -> Result<MessageId, Error> {
    row.try_get(index).map(|Id(id)| id)
}

/// The ids in the first column of some rows, as a parameter for the next statement.
pub(super) fn ids(rows: &[Row]) -> Result<Vec<Id>, Error> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Ids that somebody else keeps, as a parameter.
pub(super) fn as_ids<'a>(ids: impl IntoIterator<Item = &'a MessageId>) -> Vec<Id<&'a MessageId>> {
    ids.into_iter().map(Id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_testkit::Postgres;
    use std::collections::HashSet;

    const CANONICAL: &str = "01a1e1ac-b8ca-725d-b907-96cdba7a789c";

    fn written(param: &dyn ToSql, ty: &Type) -> Option<Vec<u8>> {
        let mut out = BytesMut::new();
        match param.to_sql_checked(ty, &mut out).unwrap() {
            IsNull::No => Some(out.to_vec()),
            IsNull::Yes => None,
        }
    }

    fn text(text: &str) -> Option<Vec<u8>> {
        Some(text.as_bytes().to_vec())
    }

    #[test]
    fn an_id_is_written_as_the_column_has_it() {
        let uuid = Uuid::parse_str(CANONICAL).unwrap();
        let bytes = Some(uuid.as_bytes().to_vec());
        let upper = CANONICAL.to_uppercase();
        let (canonical, shouted, ulid) = (
            Id(MessageId::trusted(CANONICAL)),
            Id(MessageId::trusted(&upper)),
            Id(MessageId::trusted("01ARZ3NDEKTSV4RRFFQ69G5FAV")),
        );
        assert_eq!(written(&canonical, &Type::UUID), bytes);
        assert_eq!(written(&shouted, &Type::UUID), bytes);
        assert_eq!(written(&ulid, &Type::UUID), None);
        for ty in [Type::TEXT, Type::VARCHAR] {
            assert_eq!(written(&canonical, &ty), text(CANONICAL));
            assert_eq!(written(&shouted, &ty), text(&upper));
            assert_eq!(written(&ulid, &ty), text("01ARZ3NDEKTSV4RRFFQ69G5FAV"));
        }
        assert!(canonical.to_sql_checked(&Type::INT8, &mut BytesMut::new()).is_err());
    }

    #[test]
    fn bounds_are_written_as_the_column_has_them() {
        let prefix: IdPrefix = "01A".parse().unwrap();
        let digits = |n: u128| Some(n.to_be_bytes().to_vec());
        assert_eq!(written(&Lowest(&prefix), &Type::UUID), digits(0x01a << 116));
        assert_eq!(written(&Highest(&prefix), &Type::UUID), digits((0x01b << 116) - 1));
        assert_eq!(written(&Lowest(&prefix), &Type::TEXT), text("01A"));
        assert_eq!(written(&Highest(&prefix), &Type::TEXT), text("01A\u{10ffff}"));
        let prefix: IdPrefix = "order".parse().unwrap();
        assert_eq!(written(&Lowest(&prefix), &Type::UUID), None);
        assert_eq!(written(&Highest(&prefix), &Type::UUID), None);
        assert_eq!(written(&After(None), &Type::UUID), digits(0));
        assert_eq!(written(&After(None), &Type::TEXT), text(""));
        let after = After(Some(MessageId::trusted("a")));
        assert_eq!(written(&after, &Type::VARCHAR), text("a"));
    }

    /// The same calls, whatever type the column has.
    #[tokio::test]
    async fn ids_are_found_and_read_whatever_type_their_column_has() {
        const BY_ID: &str = "SELECT id FROM keyed WHERE id = $1";
        let database = Postgres::shared().await.database().await;
        let client = database.client().await;
        let uuids = [CANONICAL, "f1a1e1ac-b8ca-725d-b907-96cdba7a789c"];
        let texts = [CANONICAL, &CANONICAL.to_uppercase(), "01ARZ3NDEKTSV4RRFFQ69G5FAV", "a:b"];
        for (ty, keys) in [("uuid", &uuids[..]), ("text", &texts), ("varchar(600)", &texts)] {
            let make = format!("CREATE TEMP TABLE keyed (id {ty} PRIMARY KEY)");
            client.batch_execute(&make).await.unwrap();
            let kept: Vec<MessageId> = keys.iter().map(|key| MessageId::trusted(key)).collect();
            let insert = format!("INSERT INTO keyed SELECT unnest($1::{ty}[])");
            client.execute(&insert, &[&as_ids(&kept)]).await.unwrap();

            let all = client.query("SELECT id FROM keyed", &[]).await.unwrap();
            let read: HashSet<MessageId> =
                ids(&all).unwrap().into_iter().map(|one| one.0).collect();
            assert_eq!(read, kept.iter().cloned().collect(), "{ty}");
            let nobodys = MessageId::trusted("nobody's");
            for wanted in &kept {
                let one = client.query_one(BY_ID, &[&Id(wanted)]).await.unwrap();
                assert_eq!(id(&one, 0).unwrap(), *wanted, "{ty}");
                let any = "SELECT id FROM keyed WHERE id = ANY ($1)";
                let any = client.query(any, &[&as_ids([wanted, &nobodys])]).await.unwrap();
                assert_eq!(ids(&any).unwrap(), [Id(wanted.clone())], "{ty}");
            }
            let none = client.query_opt(BY_ID, &[&Id(&nobodys)]).await.unwrap();
            assert!(none.is_none(), "{ty}");

            let optional = "SELECT id FROM keyed WHERE ($1::uuid[] IS NULL OR id = ANY ($1))";
            let optional = optional.replace("uuid", ty);
            let nothing: Option<Vec<Id>> = None;
            let found = client.query(&optional, &[&nothing]).await.unwrap();
            assert_eq!(found.len(), kept.len(), "{ty}");

            let after = "SELECT id FROM keyed WHERE id > $1 ORDER BY id COLLATE \"C\" LIMIT 1";
            let after =
                if ty == "uuid" { after.replace("COLLATE \"C\"", "") } else { after.into() };
            let first = client.query(&after, &[&After(None)]).await.unwrap();
            assert_eq!(Some(&id(&first[0], 0).unwrap()), kept.iter().min(), "{ty}");
            client.batch_execute("DROP TABLE keyed").await.unwrap();
        }
    }
}
