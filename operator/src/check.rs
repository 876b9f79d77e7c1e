//! `check`: whether the operators behind an address work. What `helm test` runs, with the operator's own image and no
//! rights at all.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, lookup_host},
    time::{Instant, sleep, timeout},
};

const ANSWER: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("{0} has no address: is the operator's Service there?")]
    NoAddress(String),
    #[error("{0} does not answer: {1}")]
    Silent(SocketAddr, std::io::Error),
    #[error("{0} is not ready: {1}")]
    NotReady(SocketAddr, String),
    #[error("{leaders} of {operators} operators lead, where one should")]
    Leaders { leaders: usize, operators: usize },
}

/// Every operator is ready and exactly one leads. Asked until it is so, or the time is over.
pub async fn check(addresses: &[String], within: Duration) -> Result<usize, CheckError> {
    let deadline = Instant::now() + within;
    loop {
        match once(addresses).await {
            Err(error) if Instant::now() < deadline => {
                tracing::info!("{error}; asking again");
                sleep(RETRY).await;
            }
            done => return done,
        }
    }
}

async fn once(addresses: &[String]) -> Result<usize, CheckError> {
    let mut operators = BTreeSet::new();
    for address in addresses {
        let found = lookup_host(address).await.map_err(|_| CheckError::NoAddress(address.clone()))?;
        operators.extend(found);
    }
    let mut leaders = 0;
    for operator in &operators {
        let (status, said) =
            get(*operator, "/readyz").await.map_err(|error| CheckError::Silent(*operator, error))?;
        if status != "200" {
            return Err(CheckError::NotReady(*operator, said));
        }
        let (_, metrics) =
            get(*operator, "/metrics").await.map_err(|error| CheckError::Silent(*operator, error))?;
        leaders += usize::from(metrics.lines().any(|line| line == "holdfast_operator_leader 1"));
    }
    match (leaders, operators.len()) {
        (1, operators) => Ok(operators),
        (leaders, operators) => Err(CheckError::Leaders { leaders, operators }),
    }
}

/// The status and the body.
async fn get(operator: SocketAddr, path: &str) -> std::io::Result<(String, String)> {
    let asking = async {
        let mut stream = TcpStream::connect(operator).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {operator}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        Ok((status, body.unwrap_or_default()))
    };
    timeout(ANSWER, asking).await.unwrap_or_else(|late| Err(late.into()))
}
