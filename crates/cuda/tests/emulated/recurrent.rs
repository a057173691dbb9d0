//! Recurrent layers beside the CPU's, with states of several blocks, and in a recorded step.

use crate::cuda;
use kiln_core::ops::{ElementwiseOps, RecurrentCell, RecurrentGrads, RecurrentOperands, RecurrentParams};
use kiln_core::{Backend, DType, Runtime, Shape};
use kiln_cpu::Cpu;

const STEPS: usize = 4;
const BATCH: usize = 11;
const HIDDEN: usize = 37;

fn numbers(len: usize, seed: usize) -> Vec<f32> {
    let at = |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f32 / 1009.0 - 0.5;
    (0..len).map(at).collect()
}

/// The buffers of a call and of its gradient.
struct Call<B: Backend> {
    p: RecurrentParams,
    x: B::Buffer,
    w: B::Buffer,
    bias: B::Buffer,
    h0: B::Buffer,
    c0: B::Buffer,
    lengths: B::Buffer,
    g: B::Buffer,
    kept: B::Buffer,
    y: B::Buffer,
    dx: B::Buffer,
    dr: B::Buffer,
    before: B::Buffer,
    dh0: B::Buffer,
    dc0: B::Buffer,
}

impl<B: Backend> Call<B> {
    fn new(b: &B, cell: RecurrentCell, reverse: bool) -> Self {
        let width = cell.gates() * HIDDEN;
        let (x, w) = (
            Shape::new(&[STEPS, BATCH, width]).unwrap(),
            Shape::new(&[width, HIDDEN]).unwrap(),
        );
        let lstm = cell == RecurrentCell::Lstm;
        let (p, shape) = RecurrentParams::new("recurrent", cell, &x, &w, reverse, lstm).unwrap();
        let given = |len: usize, seed: usize| b.upload(&numbers(len, seed)).unwrap();
        let made = |len: usize| b.alloc(DType::F32, len).unwrap();
        let lengths: Vec<i32> = (0..BATCH).map(|n| (1 + n % STEPS) as i32).collect();
        let state = BATCH * HIDDEN;
        Call {
            p,
            x: given(x.size(), 1),
            w: given(w.size(), 2),
            bias: given(width, 3),
            h0: given(state, 4),
            c0: given(state, 5),
            lengths: b.upload(&lengths).unwrap(),
            g: given(shape.size(), 6),
            kept: made(p.kept()),
            y: made(shape.size()),
            dx: made(x.size()),
            dr: made(x.size()),
            before: made(STEPS * state),
            dh0: made(state),
            dc0: made(state),
        }
    }

    fn run(&mut self, b: &B) -> kiln_core::Result<()> {
        let (lstm, gru) = (
            self.p.cell() == RecurrentCell::Lstm,
            self.p.cell() == RecurrentCell::Gru,
        );
        let of = RecurrentOperands {
            w: &self.w,
            bias: Some(&self.bias),
            h0: &self.h0,
            c0: lstm.then_some(&self.c0),
            lengths: Some(&self.lengths),
        };
        b.recurrent(&self.p, &self.x, &of, Some(&mut self.kept), &mut self.y)?;
        let to = RecurrentGrads {
            dx: &mut self.dx,
            dr: gru.then_some(&mut self.dr),
            before: &mut self.before,
            dh0: &mut self.dh0,
            dc0: lstm.then_some(&mut self.dc0),
        };
        b.recurrent_grad(&self.p, &of, &self.kept, &self.y, &self.g, to)
    }

    /// All results, one after the other.
    fn results(&self, b: &B) -> Vec<f32> {
        let mut all = vec![&self.y, &self.dx, &self.before, &self.dh0];
        match self.p.cell() {
            RecurrentCell::Lstm => all.push(&self.dc0),
            RecurrentCell::Gru => all.push(&self.dr),
            _ => {}
        }
        all.iter()
            .flat_map(|buffer| b.download::<f32>(buffer).unwrap())
            .collect()
    }
}

#[test]
fn results_are_the_cpus() {
    let (cuda, cpu) = (cuda(), Cpu::poisoned());
    for &cell in RecurrentCell::ALL {
        for reverse in [false, true] {
            let (mut got, mut want) = (Call::new(&cuda, cell, reverse), Call::new(&cpu, cell, reverse));
            got.run(&cuda).unwrap();
            want.run(&cpu).unwrap();
            let (got, want) = (got.results(&cuda), want.results(&cpu));
            assert_eq!(got.len(), want.len());
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                // Sums of 37 and of 148 terms in two orders, over four steps.
                let apart = (got - want).abs();
                assert!(
                    apart <= 1e-4 * want.abs().max(1.0),
                    "{cell:?} {reverse} {i}: {got}, expected {want}"
                );
            }
        }
    }
}

#[test]
fn a_recorded_step_gives_the_same_bits() {
    let cuda = cuda();
    for &cell in RecurrentCell::ALL {
        let mut call = Call::new(&cuda, cell, true);
        call.run(&cuda).unwrap();
        let want = call.results(&cuda);
        let mut graph = cuda.capture(&mut || call.run(&cuda)).unwrap().unwrap();
        for buffer in [&mut call.y, &mut call.dx, &mut call.before, &mut call.dh0] {
            cuda.fill(9.0, buffer).unwrap();
        }
        cuda.replay(&mut graph).unwrap();
        assert!(call.results(&cuda) == want, "{cell:?}");
    }
}
