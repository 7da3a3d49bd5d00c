//! Scripts that Redis runs, sent by their hash where the server has them already.

use super::Queue;
use crate::error::QueueError;
use redis::{Cmd, ErrorKind, FromRedisValue, Script, ServerErrorKind, cmd};

/// How many jobs one call of a script handles, so that none keeps Redis busy for long.
pub(super) const JOBS_MAX: usize = 500;

impl Queue {
    /// Runs a script on this queue. `arguments` adds what stands behind the keys.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        source: &str,
        keys: &[String],
        arguments: impl Fn(&mut Cmd),
    ) -> Result<T, QueueError> {
        let call = |name: &str, what: &str| {
            let mut command = cmd(name);
            command.arg(what).arg(keys.len()).arg(keys);
            arguments(&mut command);
            command
        };
        let link = &self.redis.link;
        match link.ask(&call("EVALSHA", script.get_hash())).await {
            Err(error) if is_unknown(&error) => link.ask(&call("EVAL", source)).await,
            answer => answer,
        }
    }
}

fn is_unknown(error: &QueueError) -> bool {
    let QueueError::Away { source: Some(source), .. } = error else { return false };
    source.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
