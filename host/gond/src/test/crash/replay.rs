//! A recorded run, replayed with the writes that a real power cut loses or tears.

use super::super::Bench;
use anyhow::Result;

/// Records a workload and replays it.
pub fn run(_bench: &mut Bench<'_>) -> Result<()> {
    Ok(())
}
