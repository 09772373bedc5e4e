//! The embedded server's tables: rows in key order, held in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::mutation::Mutation as Change;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    Mutation, TimestampRange, mutation,
};
use tonic::Status;

use crate::clock;

/// The versions of one column by timestamp.
type Versions = BTreeMap<i64, Vec<u8>>;

/// One row: family, then qualifier, then versions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    families: BTreeMap<String, BTreeMap<Vec<u8>, Versions>>,
}

/// One cell as a read sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CellView<'a> {
    pub(crate) family: &'a str,
    pub(crate) qualifier: &'a [u8],
    pub(crate) timestamp: i64,
    pub(crate) value: &'a [u8],
}

/// The rows of one table. Readers share the lock for one response message at a time, so a long scan never holds up a write.
pub(crate) type Table = RwLock<BTreeMap<Vec<u8>, Row>>;

/// All tables of a server, by their full resource name.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    by_name: RwLock<HashMap<String, Arc<Table>>>,
}

impl Tables {
    /// A table that was written to before.
    pub(crate) fn existing(&self, name: &str) -> Result<Arc<Table>, Status> {
        let tables = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        tables.get(name).cloned().ok_or_else(|| {
            let known: Vec<_> = tables.keys().map(String::as_str).collect();
            Status::not_found(format!(
                "table {name:?} isn't here; writing a row to it creates it. Tables here: {}",
                known.join(", ")
            ))
        })
    }

    /// A table to write to. The embedded server has no admin half, so the first write creates it.
    pub(crate) fn for_writing(&self, name: &str) -> Arc<Table> {
        let mut tables = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(tables.entry(name.to_owned()).or_default())
    }
}

impl Row {
    /// The row's cells: families and qualifiers ascending, the newest version first.
    pub(crate) fn cells(&self) -> Vec<CellView<'_>> {
        let columns = self.families.iter().flat_map(|(family, columns)| {
            columns
                .iter()
                .map(move |(qualifier, versions)| (family, qualifier, versions))
        });
        columns
            .flat_map(|(family, qualifier, versions)| {
                versions
                    .iter()
                    .rev()
                    .map(move |(timestamp, value)| CellView {
                        family,
                        qualifier,
                        timestamp: *timestamp,
                        value,
                    })
            })
            .collect()
    }

    fn change(&mut self, change: &Change) -> Result<(), Status> {
        match change {
            Change::SetCell(cell) => self.set(cell),
            Change::DeleteFromRow(_) => self.families.clear(),
            Change::DeleteFromFamily(delete) => {
                self.families.remove(&delete.family_name);
            }
            Change::DeleteFromColumn(delete) => self.delete_versions(
                &delete.family_name,
                &delete.column_qualifier,
                delete.time_range,
            ),
            Change::AddToCell(_) | Change::MergeToCell(_) => {
                return Err(Status::unimplemented(
                    "the embedded server has no aggregate cells (AddToCell, MergeToCell); use SetCell, or the emulator",
                ));
            }
        }
        Ok(())
    }

    fn set(&mut self, cell: &mutation::SetCell) {
        // -1 asks for the server's own time, which BigTable keeps in whole milliseconds.
        let timestamp = if cell.timestamp_micros == -1 {
            clock::wall_micros() / 1000 * 1000
        } else {
            cell.timestamp_micros
        };
        let columns = self.families.entry(cell.family_name.clone()).or_default();
        columns
            .entry(cell.column_qualifier.clone())
            .or_default()
            .insert(timestamp, cell.value.clone());
    }

    fn delete_versions(&mut self, family: &str, qualifier: &[u8], range: Option<TimestampRange>) {
        let range = range.unwrap_or_default();
        if let Some(versions) = self
            .families
            .get_mut(family)
            .and_then(|columns| columns.get_mut(qualifier))
        {
            // An end of 0 means that the range has none.
            versions.retain(|at, _| {
                *at < range.start_timestamp_micros
                    || (range.end_timestamp_micros != 0 && *at >= range.end_timestamp_micros)
            });
        }
    }
}

/// Applies all of `mutations` to one row, or none of them when one is refused. A row that is left without cells is removed.
pub(crate) fn mutate(table: &Table, key: &[u8], mutations: &[Mutation]) -> Result<(), Status> {
    if key.is_empty() {
        return Err(Status::invalid_argument(
            "row_key is empty; row keys have at least one byte",
        ));
    }
    if mutations.is_empty() {
        return Err(Status::invalid_argument(
            "a row's mutations are empty; name at least one",
        ));
    }
    let mut rows = table.write().unwrap_or_else(PoisonError::into_inner);
    let mut row = rows.get(key).cloned().unwrap_or_default();
    for mutation in mutations {
        let change = mutation.mutation.as_ref().ok_or_else(|| {
            Status::invalid_argument("a mutation is empty; set one of its fields")
        })?;
        row.change(change)?;
    }
    if row.cells().is_empty() {
        rows.remove(key);
    } else {
        rows.insert(key.to_vec(), row);
    }
    Ok(())
}
