//! Look up the tenant of a row of work.

use std::collections::BTreeMap;

use crate::base::error::Result;
use crate::table::columns::{at, Columns};
use crate::table::events::Tables;
use crate::table::schema;

/// A process: capture, pid.
pub type Process = (u32, Option<u32>);

/// One row of the `tenants` table.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// Id.
    pub id: u32,
    /// Device.
    pub device: u32,
    /// Capture.
    pub capture: Option<u32>,
    /// Pid as exported.
    pub pid: Option<u32>,
    /// Host pid.
    pub host_pid: Option<u32>,
    /// nsys recorded its CUDA activity.
    pub traced: bool,
    /// Tenant whose context its work goes through: the MPS server.
    pub served_by: Option<u32>,
}

/// A process on a device: capture, pid, device.
type OnDevice = (u32, Option<u32>, u32);

/// The tenant that was looked up last.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastTenant(Option<(OnDevice, Option<u32>)>);

/// Looks tenants up for rows of work.
#[derive(Debug, Clone, Default)]
pub struct Who {
    /// Tenants by id.
    pub tenants: Vec<Tenant>,
    by_process: BTreeMap<OnDevice, u32>,
}

impl Who {
    /// Reads the `tenants` table, if there is one.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for another table.
    pub fn read(tables: &Tables) -> Result<Self> {
        let mut who = Self::default();
        let Some(batch) = tables.get(schema::TENANTS.name) else { return Ok(who) };
        let columns = Columns::new(&schema::TENANTS, batch);
        let (id, device) = (columns.u32("tenant_id")?, columns.u32("device_id")?);
        let (capture, pid) = (columns.u32("capture")?, columns.u32("pid")?);
        let (host_pid, traced) = (columns.u32("host_pid")?, columns.bool("traced")?);
        let served_by = columns.u32("served_by")?;
        for row in 0..columns.rows() {
            let tenant = Tenant {
                id: id.value(row),
                device: device.value(row),
                capture: at(capture, row),
                pid: at(pid, row),
                host_pid: at(host_pid, row),
                traced: traced.value(row),
                served_by: at(served_by, row),
            };
            if let (true, Some(capture)) = (tenant.traced, tenant.capture) {
                who.by_process.insert((capture, tenant.pid, tenant.device), tenant.id);
            }
            who.tenants.push(tenant);
        }
        Ok(who)
    }

    /// The tenant of a process on a device.
    #[must_use]
    pub fn of(&self, capture: u32, pid: Option<u32>, device: u32) -> Option<u32> {
        self.by_process.get(&(capture, pid, device)).copied()
    }

    /// The same, of rows of which many of one process follow each other: it is looked up where it changes.
    pub fn of_next(&self, last: &mut LastTenant, capture: u32, pid: Option<u32>, device: u32) -> Option<u32> {
        let key = (capture, pid, device);
        match last.0 {
            Some((same, tenant)) if same == key => tenant,
            _ => {
                let tenant = self.of(capture, pid, device);
                last.0 = Some((key, tenant));
                tenant
            }
        }
    }
}
