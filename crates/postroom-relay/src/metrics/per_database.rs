//! A metric that every database has one of.

use super::Name;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// One metric for each database. A database without a name is shown without any label, where a
/// family would show an empty set of them.
#[derive(Clone, Debug)]
pub(super) struct PerDatabase<M>(Arc<Mutex<BTreeMap<Name, M>>>);

impl<M> Default for PerDatabase<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M: Clone> PerDatabase<M> {
    /// The metric of a database, which is `new` at the first call.
    pub(super) fn of(&self, database: &Name, new: impl FnOnce() -> M) -> M {
        let mut metrics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        metrics.entry(database.clone()).or_insert_with(new).clone()
    }
}

impl<M> EncodeMetric for PerDatabase<M>
where
    M: EncodeMetric + TypedMetric + fmt::Debug + Send + Sync + 'static,
{
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let metrics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metric) = metrics.get(&None) {
            return metric.encode(encoder);
        }
        for (database, metric) in metrics.iter() {
            let Some(name) = database else { continue };
            let labels = [("database", &**name)];
            metric.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }
}
