//! Arrow tables: declared, built, read, cut.

pub mod builder;
pub(crate) mod calls;
pub mod collect;
pub mod columns;
pub mod events;
pub(crate) mod kernel_names;
pub mod launch;
pub(crate) mod parts;
pub(crate) mod polls;
pub mod quality;
pub mod schema;
pub mod tenant_lookup;
pub mod window;
pub(crate) mod work;
