//! The read filters that the embedded server understands. It refuses the others, because rows that should have been filtered out would look like a
//! client's fault.

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::RowFilter;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::row_filter::Filter as Wire;
use tonic::Status;

use super::table::CellView;

/// One step applied to the cells of a row, in the order in which the request chains them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Family(String),
    PerColumn(usize),
    PerRow(usize),
    StripValues,
    BlockAll,
}

/// The steps of a request's filter; none for a request without one.
pub(crate) fn steps(filter: Option<&RowFilter>) -> Result<Vec<Step>, Status> {
    let Some(filter) = filter.and_then(|filter| filter.filter.as_ref()) else {
        return Ok(Vec::new());
    };
    Ok(match filter {
        Wire::PassAllFilter(_) => Vec::new(),
        Wire::BlockAllFilter(_) => vec![Step::BlockAll],
        Wire::StripValueTransformer(strip) => {
            strip.then_some(Step::StripValues).into_iter().collect()
        }
        Wire::CellsPerColumnLimitFilter(limit) => vec![Step::PerColumn(positive(
            "cells_per_column_limit_filter",
            *limit,
        )?)],
        Wire::CellsPerRowLimitFilter(limit) => vec![Step::PerRow(positive(
            "cells_per_row_limit_filter",
            *limit,
        )?)],
        Wire::FamilyNameRegexFilter(name) => vec![Step::Family(literal(name)?)],
        Wire::Chain(chain) => {
            let mut all = Vec::new();
            for filter in &chain.filters {
                all.extend(steps(Some(filter))?);
            }
            all
        }
        other => return Err(unsupported(other)),
    })
}

/// What is left of a row's cells after the steps.
pub(crate) fn apply<'a>(steps: &[Step], mut cells: Vec<CellView<'a>>) -> Vec<CellView<'a>> {
    for step in steps {
        match step {
            Step::Family(name) => cells.retain(|cell| cell.family == name),
            Step::PerColumn(limit) => keep_newest(&mut cells, *limit),
            Step::PerRow(limit) => cells.truncate(*limit),
            Step::StripValues => cells.iter_mut().for_each(|cell| cell.value = &[]),
            Step::BlockAll => cells.clear(),
        }
    }
    cells
}

/// Cells arrive newest first within their column.
fn keep_newest(cells: &mut Vec<CellView<'_>>, limit: usize) {
    let mut column = None;
    let mut seen = 0;
    cells.retain(|cell| {
        if column != Some((cell.family, cell.qualifier)) {
            column = Some((cell.family, cell.qualifier));
            seen = 0;
        }
        seen += 1;
        seen <= limit
    });
}

fn positive(name: &str, limit: i32) -> Result<usize, Status> {
    usize::try_from(limit)
        .ok()
        .filter(|limit| *limit > 0)
        .ok_or_else(|| {
            Status::invalid_argument(format!("{name} is {limit}; it must be at least 1"))
        })
}

/// A family name without regex operators; the embedded server has no regex engine.
fn literal(pattern: &str) -> Result<String, Status> {
    let plain = pattern
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if plain {
        Ok(pattern.to_owned())
    } else {
        Err(Status::unimplemented(format!(
            "family_name_regex_filter {pattern:?}: the embedded server matches plain names only; use the emulator"
        )))
    }
}

fn unsupported(filter: &Wire) -> Status {
    let text = format!("{filter:?}");
    let name = text.split(['(', ' ']).next().unwrap_or_default();
    Status::unimplemented(format!(
        "the embedded server has no {name}; it knows PassAll, BlockAll, StripValue, CellsPerColumnLimit, CellsPerRowLimit, a plain FamilyName and chains of \
         these; use the emulator for others"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::row_filter::Chain;

    fn cell<'a>(family: &'a str, qualifier: &'a [u8], timestamp: i64) -> CellView<'a> {
        CellView {
            family,
            qualifier,
            timestamp,
            value: b"v",
        }
    }

    fn wire(filter: Wire) -> RowFilter {
        RowFilter {
            filter: Some(filter),
        }
    }

    #[test]
    fn a_chain_keeps_the_newest_cell_of_each_column_and_strips_it() {
        let filter = wire(Wire::Chain(Chain {
            filters: vec![
                wire(Wire::CellsPerColumnLimitFilter(1)),
                wire(Wire::StripValueTransformer(true)),
            ],
        }));
        let steps = steps(Some(&filter)).unwrap();
        let cells = apply(
            &steps,
            vec![cell("f", b"a", 2), cell("f", b"a", 1), cell("f", b"b", 1)],
        );
        assert_eq!(
            cells
                .iter()
                .map(|cell| (cell.qualifier, cell.timestamp))
                .collect::<Vec<_>>(),
            vec![(&b"a"[..], 2), (&b"b"[..], 1)]
        );
        assert!(cells.iter().all(|cell| cell.value.is_empty()));
    }

    #[test]
    fn an_unknown_filter_is_refused_by_name() {
        let status = steps(Some(&wire(Wire::ValueRegexFilter(b"x".to_vec())))).unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unimplemented);
        assert!(
            status.message().contains("ValueRegexFilter"),
            "{}",
            status.message()
        );
        assert_eq!(
            steps(Some(&wire(Wire::FamilyNameRegexFilter("a.*".into()))))
                .unwrap_err()
                .code(),
            tonic::Code::Unimplemented
        );
        assert_eq!(
            steps(Some(&wire(Wire::CellsPerColumnLimitFilter(0))))
                .unwrap_err()
                .code(),
            tonic::Code::InvalidArgument
        );
    }
}
