//! Random numbers by Philox in f32, as on every backend.

use super::{Reference, ReferenceBuffer};
use kiln_core::ops::{Distribution, RandomOps, RandomParams};
use kiln_core::philox::{Key, drop_below, truncated_normal, uniform};
use kiln_core::{Result, checks};

impl RandomOps for Reference {
    fn random(&self, p: &RandomParams, step: &ReferenceBuffer, y: &mut ReferenceBuffer) -> Result<()> {
        checks::random(self, p, step, y)?;
        let key = Key::new(p.seed, p.stream, step.data[0] as i32 as u32);
        let (a, b) = (p.a as f32, p.b as f32);
        for (i, y) in y.data.iter_mut().enumerate() {
            let word = key.word(i as u64);
            *y = f64::from(match p.distribution() {
                // The sum may round up to the excluded bound.
                Distribution::Uniform => Some(a + (b - a) * uniform(word)).filter(|&v| v < b).unwrap_or(a),
                Distribution::Normal => a + b * key.normal(i as u64),
                Distribution::TruncatedNormal => a + b * truncated_normal(word),
                Distribution::Bernoulli => f32::from(u8::from(uniform(word) < a)),
                Distribution::Kept => f32::from(u8::from(key.half(i as u64) >= drop_below(p.a))),
            });
        }
        Ok(())
    }

    fn tick(&self, counter: &mut ReferenceBuffer, ticket: &mut ReferenceBuffer) -> Result<()> {
        checks::tick(self, counter, ticket)?;
        ticket.data[0] = counter.data[0];
        counter.data[0] = f64::from((counter.data[0] as i32).wrapping_add(1));
        Ok(())
    }
}
