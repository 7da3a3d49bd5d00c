//! One call for what many ask for at the same time.

use tokio::sync::{mpsc, oneshot};

/// The most that goes into one call.
const CALL_MAX: usize = 500;

/// Where to ask. Clones ask at the same place.
#[derive(Debug)]
pub(crate) struct Batcher<Q, A>(mpsc::UnboundedSender<(Q, oneshot::Sender<A>)>);

impl<Q, A> Clone for Batcher<Q, A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// What was asked and not answered yet. Bounded by how many ask: each waits for its answer.
pub(crate) type Asked<Q, A> = mpsc::UnboundedReceiver<(Q, oneshot::Sender<A>)>;

/// A batcher, and where its questions arrive.
pub(crate) fn batcher<Q, A>() -> (Batcher<Q, A>, Asked<Q, A>) {
    let (sender, asked) = mpsc::unbounded_channel();
    (Batcher(sender), asked)
}

impl<Q, A> Batcher<Q, A> {
    /// Asks, and waits for the answer. Waits for ever once nobody answers any more, which is when
    /// whoever asked is about to be stopped too.
    pub(crate) async fn ask(&self, question: Q) -> A {
        let (answer, answered) = oneshot::channel();
        let _ = self.0.send((question, answer));
        match answered.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }
}

/// Answers questions together: while one call is under way, the next gathers. Ends when nobody can
/// ask any more.
pub(crate) async fn answer<Q, A, F>(mut asked: Asked<Q, A>, call: impl Fn(Vec<Q>) -> F)
where
    F: Future<Output = Vec<A>> + Send,
{
    while let Some((questions, answers)) = together(&mut asked).await {
        reply(answers, call(questions).await);
    }
}

/// What is asked by now, up to one call's worth; `None` when nobody can ask any more.
pub(crate) async fn together<Q, A>(
    asked: &mut Asked<Q, A>,
) -> Option<(Vec<Q>, Vec<oneshot::Sender<A>>)> {
    let first = asked.recv().await?;
    let (mut questions, mut answers) = (vec![first.0], vec![first.1]);
    while questions.len() < CALL_MAX
        && let Ok((question, answer)) = asked.try_recv()
    {
        questions.push(question);
        answers.push(answer);
    }
    Some((questions, answers))
}

/// Answers questions, in their order.
pub(crate) fn reply<A>(to: Vec<oneshot::Sender<A>>, answers: Vec<A>) {
    for (to, answer) in to.into_iter().zip(answers) {
        // Whoever asked may have been stopped.
        let _ = to.send(answer);
    }
}
