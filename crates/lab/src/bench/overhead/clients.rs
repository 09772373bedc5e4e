//! The contenders, connected to the echo server.

use steadfast::{
    Balance, BalanceConfig, BalanceLayer, Bottom, BoxError, ChannelId, Config, Each, Egress,
    EgressConfig, HealthProbe, NewChannel, Pass, PenaltyConfig, PenaltyWindowLayer, Place, Pool,
    Rest, ResumableStreamLayer, RetryConfig, RetryLayer, Rule, StallConfig, StallDetectLayer,
    StreamProgress,
};
use tonic::transport::{Channel, Endpoint};
use tower::Layer;

use super::{
    Contender,
    work::{Client, Over},
};
use crate::error::{Error, Result};

/// A contender whose one connection is up.
pub(super) async fn connect(contender: Contender, uri: &str) -> Result<Box<dyn Client>> {
    let connected = connected(contender, uri).await;
    connected.map_err(|error| {
        let what = format!("can't connect {} to {uri}", contender.name());
        Error::because(what, error)
    })
}

async fn connected(contender: Contender, uri: &str) -> Result<Box<dyn Client>, BoxError> {
    let penalty = PenaltyWindowLayer::new(PenaltyConfig::default())?;
    Ok(match contender {
        Contender::Channel => Box::new(Over(bare(uri).await?)),
        Contender::Egress => {
            let egress = Egress::new(uri.to_owned(), EgressConfig::default())?;
            let place = Place::new(uri);
            let channel = egress.new_channel(ChannelId::next(), &place).await?;
            Box::new(Over(channel))
        }
        Contender::Penalty => Box::new(Over(penalty.layer(bare(uri).await?))),
        Contender::Stall => {
            let stall = StallDetectLayer::new(StallConfig::default(), HealthProbe::new())?;
            Box::new(Over(stall.layer(bare(uri).await?)))
        }
        Contender::Retry => {
            let retry = RetryLayer::new(RetryConfig::default())?;
            Box::new(Over(retry.layer(bare(uri).await?)))
        }
        Contender::Resume => {
            let resume = ResumableStreamLayer::default().rule(Counts(0))?;
            Box::new(Over(resume.layer(bare(uri).await?)))
        }
        Contender::Balance => Box::new(Over(balance(factory(uri)).await?)),
        Contender::BalancePenalty => {
            let channels = Each(penalty).layer(factory(uri));
            Box::new(Over(balance(channels).await?))
        }
        Contender::BalancePenaltyEgress => {
            let egress = Egress::new(uri.to_owned(), EgressConfig::default())?;
            Box::new(Over(balance(Each(penalty).layer(egress)).await?))
        }
        Contender::Stack => {
            let config = Config {
                balance: BalanceConfig::fixed(1),
                ..Config::default()
            };
            let builder = Pool::builder(uri.to_owned()).config(config).without_env();
            let pool = builder.resume(Counts(0)).build()?;
            pool.warm(1).await?;
            Box::new(Over(pool))
        }
    })
}

/// What most rules do for a message: they take note of it.
struct Counts(u64);

impl Rule for Counts {
    fn method(&self) -> &str {
        "/steadfast.test.Echo/ServerStream"
    }

    fn begin(&self, _: &[u8]) -> Result<Box<dyn StreamProgress>, BoxError> {
        Ok(Box::new(Self(0)))
    }
}

impl StreamProgress for Counts {
    fn message(&mut self, _: &[u8]) -> Result<Pass, BoxError> {
        self.0 += 1;
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        Ok(Rest::cannot("the echo service can't be asked for the rest"))
    }
}

async fn bare(uri: &str) -> Result<Channel, BoxError> {
    Ok(Endpoint::from_shared(uri.to_owned())?.connect().await?)
}

/// A factory of bare channels.
fn factory(uri: &str) -> impl NewChannel<Service = Bottom<Channel>> + use<> {
    let uri = uri.to_owned();
    move |_id: ChannelId, _place: Place| {
        let uri = uri.clone();
        async move { bare(&uri).await }
    }
}

async fn balance<F>(factory: F) -> Result<Balance<F::Service>, BoxError>
where
    F: NewChannel<Service: Clone + Send + Sync + 'static>,
{
    let balance = BalanceLayer::new(BalanceConfig::fixed(1))?.layer(factory);
    balance.warm(1).await?;
    Ok(balance)
}
