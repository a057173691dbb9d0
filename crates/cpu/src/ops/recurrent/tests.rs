use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{RecurrentCell, RecurrentGrads, RecurrentOperands, RecurrentOps, RecurrentParams};
use kiln_core::{DType, Runtime, Shape};
use rayon::ThreadPoolBuilder;

fn numbers(cpu: &Cpu, len: usize, seed: usize) -> CpuBuffer {
    let at = |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f32 / 1009.0 - 0.5;
    cpu.upload(&(0..len).map(at).collect::<Vec<_>>()).unwrap()
}

/// The results and gradients of a layer, all one after the other.
fn run(cell: RecurrentCell, threads: usize) -> Vec<u32> {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let cpu = &Cpu::poisoned();
        let (steps, batch, hidden) = (9, 21, 67);
        let width = cell.gates() * hidden;
        let (x, w) = (
            Shape::new(&[steps, batch, width]).unwrap(),
            Shape::new(&[width, hidden]).unwrap(),
        );
        let (p, shape) = RecurrentParams::new("recurrent", cell, &x, &w, true, false).unwrap();
        let x = numbers(cpu, x.size(), 1);
        let (w, bias) = (numbers(cpu, w.size(), 2), numbers(cpu, width, 3));
        let (h0, c0) = (numbers(cpu, batch * hidden, 4), numbers(cpu, batch * hidden, 5));
        let lengths: Vec<i32> = (0..batch as i32).map(|i| 1 + i % 9).collect();
        let lengths = cpu.upload(&lengths).unwrap();
        let lstm = cell == RecurrentCell::Lstm;
        let of = RecurrentOperands {
            w: &w,
            bias: Some(&bias),
            h0: &h0,
            c0: lstm.then_some(&c0),
            lengths: Some(&lengths),
        };
        let made = |len: usize| cpu.alloc(DType::F32, len).unwrap();
        let (mut y, mut kept) = (made(shape.size()), made(p.kept()));
        cpu.recurrent(&p, &x, &of, Some(&mut kept), &mut y).unwrap();
        let g = numbers(cpu, shape.size(), 6);
        let (mut dx, mut dr, mut before) = (
            made(steps * batch * width),
            made(steps * batch * width),
            made(shape.size()),
        );
        let (mut dh0, mut dc0) = (made(batch * hidden), made(batch * hidden));
        let to = RecurrentGrads {
            dx: &mut dx,
            dr: (cell == RecurrentCell::Gru).then_some(&mut dr),
            before: &mut before,
            dh0: &mut dh0,
            dc0: lstm.then_some(&mut dc0),
        };
        cpu.recurrent_grad(&p, &of, &kept, &y, &g, to).unwrap();
        let all = [&y, &dx, &before, &dh0].map(|buffer| cpu.download::<f32>(buffer).unwrap());
        all.concat().into_iter().map(f32::to_bits).collect()
    })
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for &cell in RecurrentCell::ALL {
        let one = run(cell, 1);
        assert!(one.iter().all(|&bits| f32::from_bits(bits).is_finite()), "{cell:?}");
        for threads in [2, 3] {
            assert!(one == run(cell, threads), "{cell:?} on {threads} threads");
        }
    }
}
