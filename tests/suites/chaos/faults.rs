//! Who ends processes, and when.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use holdfast_tests::stage::{LEASE, Stage};

/// A replica that was told to stop is gone within its grace period; this is more.
const GRACE: Duration = Duration::from_secs(60);

/// However it ends, the clients may stop then.
struct Over<'a>(&'a Stage);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.hurting.store(false, Ordering::Relaxed);
    }
}

/// `rounds` times each replica: a new one first, then SIGTERM for the old one, which must end by itself, and well.
pub async fn restart_each_in_turn(stage: &Stage, rounds: usize) -> Result<usize> {
    let _over = Over(stage);
    let mut restarted = 0;
    for _ in 0..rounds {
        let count = stage.replicas.lock().await.len();
        for _ in 0..count {
            stage.add_replica(&[]).await?;
            let mut old = stage.replicas.lock().await.remove(0);
            // What an endpoint's removal does: no new connections, the open ones stay.
            stage.client.doors.close(&old.url);
            tokio::time::sleep(Duration::from_millis(100)).await;
            old.signal("TERM")?;
            let status = old.ended(GRACE).await?;
            ensure!(status.success(), "{} ended with {status}:\n{}", old.name, old.log_tail());
            restarted += 1;
        }
    }
    Ok(restarted)
}

#[derive(Debug, Default)]
pub struct Faults {
    kills: u64,
    pauses: u64,
    stops: u64,
    redis: u64,
}

impl Faults {
    pub fn each_kind_came(&self) -> bool {
        [self.kills, self.pauses, self.stops, self.redis].iter().all(|count| *count > 0)
    }

    pub fn total(&self) -> u64 {
        self.kills + self.pauses + self.stops + self.redis
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, pauses, stops, redis } = self;
        write!(
            f,
            "  faults: {kills} kill -9, {pauses} pauses past the lease, {stops} SIGTERM, {redis} Redis killed and restarted"
        )
    }
}

/// `wanted` faults in an order made by `seed`.
pub async fn at_random(stage: &Stage, seed: u64, wanted: u64) -> Result<Faults> {
    let _over = Over(stage);
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut faults = Faults::default();
    while faults.total() < wanted {
        tokio::time::sleep(Duration::from_millis(200 + dice.below(500))).await;
        // One of each kind first: a run in which a kind never came would show nothing about it.
        let kind = [0, 4, 6, 8].get(usize::try_from(faults.total())?).copied();
        match kind.unwrap_or_else(|| dice.below(10)) {
            0..4 => {
                let mut victim = take(stage, &mut dice).await?;
                victim.signal("KILL")?;
                victim.ended(GRACE).await?;
                stage.client.doors.close(&victim.url);
                stage.add_replica(&[]).await?;
                faults.kills += 1;
            }
            4..6 => {
                let victim = take(stage, &mut dice).await?;
                victim.signal("STOP")?;
                tokio::time::sleep(LEASE + Duration::from_millis(500)).await;
                victim.signal("CONT")?;
                stage.replicas.lock().await.push(victim);
                faults.pauses += 1;
            }
            6..8 => {
                let mut victim = take(stage, &mut dice).await?;
                stage.client.doors.close(&victim.url);
                victim.signal("TERM")?;
                stage.add_replica(&[]).await?;
                let status = victim.ended(GRACE).await?;
                ensure!(status.success(), "{} ended with {status}:\n{}", victim.name, victim.log_tail());
                faults.stops += 1;
            }
            _ => {
                let mut redis = stage.redis.lock().await;
                redis.kill();
                tokio::time::sleep(Duration::from_millis(dice.below(800))).await;
                redis.restart()?;
                faults.redis += 1;
            }
        }
    }
    Ok(faults)
}

async fn take(stage: &Stage, dice: &mut Dice) -> Result<holdfast_tests::replica::Replica> {
    let mut replicas = stage.replicas.lock().await;
    let count = u64::try_from(replicas.len())?;
    ensure!(count > 0, "no replica is left");
    let index = usize::try_from(dice.below(count)).context("an index")?;
    Ok(replicas.remove(index))
}

/// Numbers that are the same for the same seed: xorshift is enough to choose whom to hurt.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
