//! In which order do the rooms run?
//!
//! ```text
//!   switch_events -> residency -> tenants -> overlap -> facts
//! ```
//!
//! Each room sees the tables of those before it and nothing else.

use crate::error::Result;
use crate::facts::Facts;
use crate::fold::{Fold, Tables};
use crate::overlap::Overlap;
use crate::residency::Residency;
use crate::schema;
use crate::tenants::Tenants;
use crate::watch::Watch;

/// Reconstructs a session (captures joined on one clock): hands out `residency`, `switches`, `tenants`,
/// `tenant_usage`, `charged`, `overlaps`, `facts`, `fact_examples` and the `quality` counts made on the way.
///
/// Events are folded in chunks of about `chunk_rows` rows (0: all at once); the result does not depend
/// on it.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be,
/// [`crate::Error::Cancelled`].
pub fn reconstruct(session: &Tables, chunk_rows: usize, watch: &dyn Watch) -> Result<Tables> {
    let mut seen = session.clone();
    let mut made = Tables::new();
    let held = Residency::default().run(&seen, chunk_rows, watch)?;
    let mut quality = held.quality;
    seen.insert(schema::RESIDENCY.name, held.residency);
    seen.insert(schema::SWITCHES.name, held.switches);

    let tenants = Tenants::new(&seen)?.run(&seen, chunk_rows, watch)?;
    quality.absorb(tenants.quality);
    for (table, batch) in [
        (&schema::TENANTS, tenants.tenants),
        (&schema::RESIDENCY, tenants.residency),
        (&schema::SWITCHES, tenants.switches),
    ] {
        seen.insert(table.name, batch.clone());
        made.insert(table.name, batch);
    }

    let overlap = Overlap::new(&seen)?.run(&seen, chunk_rows, watch)?;
    seen.insert(schema::OVERLAPS.name, overlap.overlaps.clone());
    made.insert(schema::OVERLAPS.name, overlap.overlaps);
    made.insert(schema::CHARGED.name, overlap.charged);
    made.insert(schema::TENANT_USAGE.name, overlap.tenant_usage);

    let facts = Facts::new(&seen)?.run(&seen, chunk_rows, watch)?;
    made.insert(schema::FACTS.name, facts.facts);
    made.insert(schema::FACT_EXAMPLES.name, facts.fact_examples);
    made.insert(schema::QUALITY.name, quality.table()?);
    Ok(made)
}
