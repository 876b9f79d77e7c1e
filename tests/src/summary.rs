//! What a run came to: the judge's verdict, and what the clients saw of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::checker::{Evidence, Verdict, judge};
use crate::http::Http;
use crate::load::{Client, Happened, How, Session, Told};
use crate::papers;

/// The tools of `FakeTools::witness` that must never run twice.
pub const UNSAFE_TOOL: &str = "refund";
/// What the history says of a tool that may or may not have run.
const OUTCOME_UNKNOWN: &str = "outcome unknown";

#[derive(Debug)]
pub struct Summary {
    pub told: Vec<Told>,
    pub sessions: usize,
    pub failures: u32,
    pub cuts: u32,
    /// Calls that another replica went on with.
    pub resumed: usize,
    /// Of these, the ones whose client was connected all the time and saw one whole answer.
    pub resumed_unseen: usize,
    /// Calls whose client was cut off, and never got their end.
    pub unrecovered: usize,
    /// Sessions in which a tool's outcome is not known.
    pub unknown: usize,
    pub verdict: Verdict,
}

/// One thing a client met on the way.
#[derive(Debug, Clone, Copy)]
pub struct Trouble<'a> {
    /// Milliseconds since 1970.
    pub at: u64,
    pub told: &'a Told,
    pub what: &'a str,
}

impl Summary {
    /// Asks for every session's state, through `door`, and judges.
    pub async fn of(
        http: &Http,
        door: &str,
        told: Vec<Told>,
        model: Vec<Value>,
        tools: Vec<Value>,
    ) -> Result<Self> {
        let mut states = BTreeMap::new();
        let sessions: BTreeSet<_> =
            told.iter().map(|told| (told.user.clone(), told.session.clone())).collect();
        for who in sessions {
            let session = Session { user: who.0.clone(), session: who.1.clone() };
            let answer = http.get(&format!("{door}{}/state", session.path())).await?;
            ensure!(answer.status == 200, "no state of {who:?}: {} {}", answer.status, answer.body);
            states.insert(who, answer.body);
        }
        let unknown = states.values().filter(|state| state.to_string().contains(OUTCOME_UNKNOWN)).count();
        let sessions = states.len();
        let files = papers::find(http, door, &told).await?;
        let unsafe_tools = [UNSAFE_TOOL.to_owned()].into();
        let evidence = Evidence { model, tools, unsafe_tools, states, files, told };
        let verdict = judge(&evidence);
        let told = evidence.told;
        let resumed = || told.iter().filter(|told| told.resumes > 0);
        Ok(Self {
            sessions,
            failures: told.iter().map(|told| told.failures).sum(),
            cuts: told.iter().map(|told| told.cuts).sum(),
            resumed: resumed().count(),
            resumed_unseen: resumed().filter(|told| !told.was_cut() && told.how != How::Background).count(),
            unrecovered: told.iter().filter(|told| told.was_cut() && told.outcome.is_none()).count(),
            unknown,
            verdict,
            told,
        })
    }

    pub fn calls(&self) -> usize {
        self.told.len()
    }

    pub fn count(&self, how: How) -> usize {
        self.told.iter().filter(|told| told.how == how).count()
    }

    /// Calls whose client was cut off at least once.
    pub fn cut_clients(&self) -> usize {
        self.told.iter().filter(|told| told.was_cut()).count()
    }

    /// From a stream's cut until its client heard something again.
    pub fn silences(&self) -> Spread {
        Spread::of(self.streams().flat_map(Told::silences))
    }

    /// From a stream's cut until its client heard that another replica goes on.
    pub fn takeovers(&self) -> Spread {
        Spread::of(self.streams().flat_map(Told::takeovers))
    }

    /// From a call's being given back until another replica went on with it, as streams that stayed connected told.
    pub fn handovers(&self) -> Spread {
        Spread::of(self.streams().flat_map(Told::handovers))
    }

    fn streams(&self) -> impl Iterator<Item = &Told> {
        self.told.iter().filter(|told| told.how == How::Stream)
    }

    /// SIGTERM is not a fault: nobody may have seen anything.
    pub fn nobody_saw_anything(&self) -> Result<()> {
        self.nothing_is_lost()?;
        ensure!(self.failures == 0, "{} requests failed: {:?}", self.failures, self.reasons());
        ensure!(self.cuts == 0, "{} streams were cut", self.cuts);
        ensure!(self.unknown == 0, "{} sessions have a tool call with an unknown outcome", self.unknown);
        Ok(())
    }

    /// What holds under every fault.
    pub fn nothing_is_lost(&self) -> Result<()> {
        ensure!(self.verdict.is_clean(), "a promise was broken:\n{}", self.verdict);
        ensure!(self.unrecovered == 0, "{} clients never got the rest", self.unrecovered);
        let ended = self.told.iter().filter_map(|told| told.outcome.as_ref().map(|end| (&told.call, end)));
        let not_completed: Vec<_> = ended.filter(|(_, end)| end["status"] != "completed").collect();
        ensure!(not_completed.is_empty(), "calls ended otherwise than completed: {not_completed:?}");
        Ok(())
    }

    /// Everything clients met that they should not have, in the order of time.
    pub fn troubles(&self) -> Vec<Trouble<'_>> {
        let mut troubles: Vec<_> = self
            .told
            .iter()
            .flat_map(|told| told.marks.iter().map(move |mark| (told, mark)))
            .filter_map(|(told, mark)| {
                let what = match &mark.what {
                    Happened::Failed(why) => why.as_str(),
                    Happened::Cut => "its stream was cut",
                    _ => return None,
                };
                Some(Trouble { at: mark.at, told, what })
            })
            .collect();
        troubles.sort_by_key(|trouble| trouble.at);
        troubles
    }

    /// Why requests failed, each reason once, with how often.
    pub fn reasons(&self) -> BTreeMap<&str, usize> {
        let mut reasons = BTreeMap::new();
        for mark in self.told.iter().flat_map(|told| &told.marks) {
            if let Happened::Failed(why) = &mark.what {
                *reasons.entry(why.as_str()).or_default() += 1;
            }
        }
        reasons
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, what: &str, value: &dyn fmt::Display| {
            writeln!(f, "  {what:<52} {value:>5}")
        };
        row(f, "sessions", &self.sessions)?;
        row(f, "calls", &self.calls())?;
        row(f, "  streamed", &self.count(How::Stream))?;
        row(f, "  whose client left at once", &self.count(How::Background))?;
        row(f, "  taken over by another replica", &self.resumed)?;
        row(f, "    with the client still connected", &self.resumed_unseen)?;
        row(f, "requests that failed", &self.failures)?;
        row(f, "streams that were cut", &self.cuts)?;
        row(f, "calls whose client was cut off", &self.cut_clients())?;
        row(f, "  and never got the rest", &self.unrecovered)?;
        row(f, "sessions with a tool's outcome unknown", &self.unknown)?;
        if !self.handovers().is_empty() {
            row(f, "from given back until another replica goes on", &self.handovers())?;
        }
        if !self.silences().is_empty() {
            row(f, "from a cut until something is heard again", &self.silences())?;
        }
        if !self.takeovers().is_empty() {
            row(f, "from a cut until another replica goes on", &self.takeovers())?;
        }
        write!(f, "{}", self.verdict)
    }
}

/// Durations, sorted.
#[derive(Debug, Clone, Default)]
pub struct Spread(Vec<Duration>);

impl Spread {
    pub fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<_> = durations.into_iter().collect();
        sorted.sort_unstable();
        Self(sorted)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest duration that `percent` of them do not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(rank).copied().unwrap_or_default()
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |percent| self.percentile(percent).as_secs_f64();
        write!(f, "p50 {:.1} s, p99 {:.1} s of {}", seconds(50), seconds(99), self.len())
    }
}

/// Calls whose clients left are looked after once, at the end: everything admitted must come to an end by itself.
pub async fn see_the_end_of_those_left(
    client: &Client,
    door: &str,
    told: &mut [Told],
    within: Duration,
) -> Result<()> {
    let deadline = tokio::time::Instant::now() + within;
    for told in told.iter_mut().filter(|told| told.how == How::Background) {
        let session = Session { user: told.user.clone(), session: told.session.clone() };
        let url = format!("{door}{}/calls/{}", session.path(), told.call);
        loop {
            let answer = client.http.get(&url).await;
            if let Ok(answer) = &answer
                && answer.status == 200
                && matches!(answer.body["status"].as_str(), Some("completed" | "failed" | "interrupted"))
            {
                told.resumes = answer.body["resumes"].as_u64().unwrap_or(0);
                told.outcome = Some(answer.body.clone());
                break;
            }
            ensure!(
                tokio::time::Instant::now() < deadline,
                "{} was left by its client and has not ended within {} s: {answer:?}",
                told.call,
                within.as_secs()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_durations_that_were_seen() {
        let spread = Spread::of((1..=200).map(Duration::from_secs));
        assert_eq!([50, 99, 100].map(|percent| spread.percentile(percent).as_secs()), [100, 198, 200]);
        assert_eq!(Spread::of([Duration::from_secs(7)]).percentile(1), Duration::from_secs(7));
    }
}
