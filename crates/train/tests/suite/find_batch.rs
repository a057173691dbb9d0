//! The search for a batch size.

use crate::common::{Net, bytes, images, step};
use kiln_core::Runtime;
use kiln_cpu::Cpu;
use kiln_data::{Loader, LoaderOptions, ToFloat};
use kiln_nn::Module;
use kiln_nn::optim::Adam;
use kiln_train::{
    BatchCurve, BatchLimit, BatchRange, Flow, Result, StopHandle, TrainError, TrainOptions, Trainer, find_batch,
};

fn search(cpu: &Cpu, net: &mut Net<Cpu>, samples: usize, range: &BatchRange) -> Result<BatchCurve> {
    let data = images(samples, 0);
    let train = |trainer: &mut Trainer<Cpu>, net: &mut Net<Cpu>, batch_size: usize| {
        let options = LoaderOptions {
            batch_size,
            drop_last: true,
            ..Default::default()
        };
        let loader = Loader::new(data.clone(), options)?.with_transform(ToFloat);
        trainer.fit(net, &mut Adam::new(1e-2), step, &loader, None)
    };
    find_batch(cpu, net, samples, train, range, |_| Ok(Flow::Continue))
}

#[test]
fn the_largest_batch_fits_and_a_little_more_does_not() {
    let limited = |bytes| Cpu::builder().memory_limit(Some(bytes)).build();
    for freeze in [&[][..], &["conv"]] {
        let range = BatchRange {
            options: TrainOptions {
                freeze: freeze.iter().map(|name| name.parse().unwrap()).collect(),
                ..Default::default()
            },
            ..Default::default()
        };
        let cpu = limited(2 << 20);
        let mut net = Net::with_dropout(&cpu, 0, 0.1);
        let (before, live) = (bytes(&net), cpu.memory().live);
        let curve = search(&cpu, &mut net, 5000, &range).unwrap();
        assert_eq!(curve.limit, BatchLimit::Memory);
        assert!(before == bytes(&net) && net.num_trainable() == net.num_parameters());
        assert_eq!(cpu.memory().live, live, "the search leaves nothing behind");
        let largest = curve.largest().unwrap();
        assert!(largest > 64, "{curve:?}");
        for point in &curve.points {
            assert_eq!(point.fits, point.batch <= largest, "{point:?}");
            assert_eq!(
                (point.refused.is_none(), point.seconds.is_some()),
                (point.fits, point.fits),
                "{point:?}"
            );
        }
        let fails = curve.points.iter().filter(|p| !p.fits).map(|p| p.batch).min().unwrap();
        assert!(fails - largest <= largest / 32 + 1, "{largest} {fails}");
        let (requested, free) = curve.points.iter().find(|p| !p.fits).unwrap().refused.unwrap();
        assert!(requested > free.unwrap());
        assert!(curve.fastest().unwrap() <= largest);
        // It is the same on a device of its own.
        let cpu = limited(2 << 20);
        let again = search(&cpu, &mut Net::with_dropout(&cpu, 0, 0.1), 5000, &range).unwrap();
        assert!(
            again.largest().unwrap().abs_diff(largest) <= largest / 8,
            "{largest} {again:?}"
        );
    }
}

#[test]
fn the_search_ends_with_the_samples_the_range_or_a_stop() {
    let cpu = Cpu::new();
    let net = || Net::new(&cpu, 0);
    let sizes = |curve: &BatchCurve| curve.points.iter().map(|p| p.batch).collect::<Vec<_>>();
    let range = |min, max| BatchRange {
        min,
        max,
        steps: 3,
        ..Default::default()
    };
    let curve = search(&cpu, &mut net(), 44, &range(4, 100)).unwrap();
    assert_eq!(
        (sizes(&curve), curve.limit),
        (vec![4, 8, 16, 32, 44], BatchLimit::Samples)
    );
    let curve = search(&cpu, &mut net(), 44, &range(3, 10)).unwrap();
    assert_eq!((sizes(&curve), curve.limit), (vec![3, 6, 10], BatchLimit::Range));
    let curve = search(&cpu, &mut net(), 5, &range(8, 10)).unwrap();
    assert_eq!((sizes(&curve), curve.limit), (vec![5], BatchLimit::Samples));
    let stopped = BatchRange {
        stop: StopHandle::new(),
        ..range(1, 8)
    };
    stopped.stop.request();
    let curve = search(&cpu, &mut net(), 44, &stopped).unwrap();
    assert_eq!(
        (sizes(&curve), curve.limit, curve.largest()),
        (vec![], BatchLimit::Stopped, None)
    );
    for wrong in [
        range(0, 4),
        range(5, 4),
        BatchRange {
            steps: 2,
            ..range(1, 4)
        },
    ] {
        let refused = search(&cpu, &mut net(), 44, &wrong).unwrap_err();
        assert!(matches!(refused, TrainError::InvalidArgument { .. }), "{refused}");
    }
}

#[test]
fn a_first_size_that_does_not_fit_is_halved() {
    let cpu = Cpu::builder().memory_limit(Some(1 << 20)).build();
    let range = BatchRange {
        min: 2048,
        ..Default::default()
    };
    let curve = search(&cpu, &mut Net::new(&cpu, 0), 5000, &range).unwrap();
    assert!(curve.largest().is_some_and(|largest| largest < 2048), "{curve:?}");
    let cpu = Cpu::builder().memory_limit(Some(64 << 10)).build();
    let curve = search(&cpu, &mut Net::new(&cpu, 0), 5000, &BatchRange::default()).unwrap();
    assert!(curve.limit == BatchLimit::Memory, "{curve:?}");
}
