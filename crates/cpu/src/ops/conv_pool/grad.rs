//! The gradients of a convolution followed by max pooling, a few images at a time: the gradient of the convolution's result
//! is computed in cache, or not at all.

use super::plan::{self, Forward};
use super::split::BatchSplit;
use crate::fused_pool::argmax_grad::ArgmaxGrad;
use crate::gemm::sum_parts;
use crate::ops::conv::{data_grad, weight_grad};
use crate::ops::pool::{is_2x2_stride2, max_pool_grad_wide};
use crate::parallel::try_chunks_mut;
use crate::scalar::{Scalar, Stored};
use crate::simd::lanes::lanes;
use crate::simd::upcast::{Upcast, write_upcast_to};
use crate::{Cpu, CpuBuffer};
use kiln_core::host::room;
use kiln_core::ops::{ConvPoolGrads, ConvPoolParams, PooledGrad};
use kiln_core::{Element, Result};

/// Computes the gradients `to`, for no activation or ReLU, in the accumulation type. Halves are widened, and rounded, a part of the batch
/// at a time, but for gradients that are computed of the whole batch.
pub(super) fn gradients<T: Stored>(
    cpu: &Cpu,
    p: &ConvPoolParams,
    of: &PooledGrad<'_, CpuBuffer>,
    (x, w): (&CpuBuffer, &CpuBuffer),
    to: ConvPoolGrads<'_, CpuBuffer>,
) -> Result<()> {
    let (x, w) = (x.as_slice::<T>(), Upcast::new::<T>(cpu, w)?);
    let [dx, dw, db] = [to.dx, to.dw, to.db].map(|to| to.map_or(&mut [][..], CpuBuffer::as_mut_slice::<T>));
    write_upcast_to(cpu, dw, |dw| {
        write_upcast_to(cpu, db, |db| {
            wide_gradients::<T>(cpu, p, of, (x, w.slice()), (dx, dw, db))
        })
    })
}

fn wide_gradients<T: Stored>(
    cpu: &Cpu,
    p: &ConvPoolParams,
    of: &PooledGrad<'_, CpuBuffer>,
    (x, w): (&[T], &[T::Acc]),
    (mut dx, mut dw, mut db): (&mut [T], &mut [T::Acc], &mut [T::Acc]),
) -> Result<()> {
    let parts = BatchSplit::new(p);
    let [image, result, _] = parts.sizes();
    let wanted = [!dx.is_empty(), !dw.is_empty()];
    if let Some((argmax, parts, [into_image, into_weight])) = parts.argmax::<T::Acc>(cpu, wanted, dw.len()) {
        let of_image = take_if(into_image, &mut dx);
        let of_weight = take_if(into_weight, &mut dw);
        let of_bias = std::mem::take(&mut db);
        parts.tasks(cpu, of_image, of_weight, of_bias, |task| {
            parts.before_activation::<T, T>(cpu, of, task, |task, g, index| {
                if into_weight {
                    let x = Upcast::of(cpu, task.images_of(x, image))?;
                    argmax.weight_grad(cpu, x.slice(), (g, index), task.dw)?;
                }
                if into_image {
                    write_upcast_to::<T>(cpu, task.own, |dx| argmax.image_grad(cpu, w, (g, index), dx))?;
                }
                Ok(())
            })
        })?;
    }
    if dx.is_empty() && dw.is_empty() {
        return if db.is_empty() {
            Ok(())
        } else {
            parts.tasks(cpu, dx, dw, db, |task| {
                parts.before_activation::<T, T>(cpu, of, task, |_, _, _| Ok(()))
            })
        };
    }
    if dx.is_empty() && parts.bounds_sums(dw.len()) && (parts.is_profitable(cpu) || plan::preferred(cpu).is_some()) {
        return parts.weight_grad::<T>(cpu, p, of, x, (dw, db));
    }
    let mut pre_pool = cpu.scratch(<T::Acc as Element>::DTYPE, parts.conv.batch * result)?;
    let pre_pool = pre_pool.as_mut_slice::<T::Acc>();
    parts.tasks(cpu, pre_pool, &mut [], db, |task| parts.pre_pool::<T>(cpu, of, task))?;
    if !dx.is_empty() {
        write_upcast_to::<T>(cpu, dx, |dx| data_grad(cpu, &parts.conv, pre_pool, w, dx))?;
    }
    if !dw.is_empty() {
        weight_grad(cpu, &parts.conv, pre_pool, Upcast::of(cpu, x)?.slice(), dw)?;
    }
    Ok(())
}

/// Takes all of `from` if `wanted`; otherwise returns an empty slice.
fn take_if<'a, A>(wanted: bool, from: &mut &'a mut [A]) -> &'a mut [A] {
    if wanted { std::mem::take(from) } else { &mut [] }
}

/// The results for the images from `first` on: the elements that belong to these images, and partial gradients of the
/// weight and the bias; empty if they are not wanted.
struct PartGrads<'t, T, A> {
    first: usize,
    images: usize,
    own: &'t mut [T],
    dw: &'t mut [A],
    db: &'t mut [A],
}

impl<T, A> PartGrads<'_, T, A> {
    /// The part of `x` for these images, of `size` elements each.
    fn images_of<'x, E>(&self, x: &'x [E], size: usize) -> &'x [E] {
        &x[self.first * size..(self.first + self.images) * size]
    }
}

impl BatchSplit {
    /// The computation from the chosen results alone, the parts of the batch for it, and which of the `wanted` gradients
    /// (image, weight) it is profitable for; `None` if for neither.
    fn argmax<A: Scalar>(
        &self,
        cpu: &Cpu,
        wanted: [bool; 2],
        weights: usize,
    ) -> Option<(ArgmaxGrad<A>, Self, [bool; 2])> {
        let argmax = is_2x2_stride2(&self.pool).then(|| ArgmaxGrad::new(cpu, &self.conv, &self.pool))??;
        let parts = |gradients: [bool; 2]| BatchSplit {
            images: argmax.images(gradients),
            ..*self
        };
        let preferred = plan::preferred(cpu).map(|name| name == plan::ARGMAX);
        let mut gradients = [0, 1].map(|i| wanted[i] && preferred.unwrap_or(argmax.is_profitable[i]));
        gradients[1] &= parts(gradients).bounds_sums(weights);
        let parts = parts(gradients);
        gradients.contains(&true).then_some((argmax, parts, gradients))
    }

    /// Runs `f` for each part of the batch: `own` is cut by images, and the partial `dw` and `db` are summed.
    fn tasks<T: Send, A: Scalar>(
        &self,
        cpu: &Cpu,
        own: &mut [T],
        dw: &mut [A],
        db: &mut [A],
        f: impl Fn(&mut PartGrads<'_, T, A>) -> Result<()> + Sync,
    ) -> Result<()> {
        let (batch, count) = (self.conv.batch, self.count());
        if count <= 1 {
            dw.fill(A::default());
            db.fill(A::default());
            let whole = &mut PartGrads {
                first: 0,
                images: batch,
                own,
                dw,
                db,
            };
            return if count == 0 { Ok(()) } else { f(whole) };
        }
        let mut sums = cpu.scratch(A::DTYPE, count * (dw.len() + db.len()))?;
        let (of_weight, of_bias) = sums.as_mut_slice::<A>().split_at_mut(count * dw.len());
        let mut tasks = room(count)?;
        let (mut owns, mut dws, mut dbs) = (own, &mut *of_weight, &mut *of_bias);
        let of_image = owns.len() / batch;
        for first in (0..batch).step_by(self.images) {
            let images = self.images.min(batch - first);
            let (own, dw_of, db_of);
            (own, owns) = owns.split_at_mut(images * of_image);
            (dw_of, dws) = dws.split_at_mut(dw.len());
            (db_of, dbs) = dbs.split_at_mut(db.len());
            tasks.push(PartGrads {
                first,
                images,
                own,
                dw: dw_of,
                db: db_of,
            });
        }
        try_chunks_mut(&mut tasks, 1, true, |_, task| f(&mut task[0]))?;
        sum_parts(of_weight, dw);
        sum_parts(of_bias, db);
        Ok(())
    }

    /// Calls `f(task, gradient, index)` with the gradient of the chosen results before the activation, after computing that of
    /// the bias.
    fn before_activation<T: Stored, E>(
        &self,
        cpu: &Cpu,
        of: &PooledGrad<'_, CpuBuffer>,
        task: &mut PartGrads<'_, E, T::Acc>,
        f: impl FnOnce(&mut PartGrads<'_, E, T::Acc>, &[T::Acc], &[i32]) -> Result<()>,
    ) -> Result<()> {
        let [_, _, of_image] = self.sizes();
        let g = Upcast::of(cpu, task.images_of(of.g.as_slice::<T>(), of_image))?;
        let (mut g, index) = (g.slice(), task.images_of(of.index.as_slice::<i32>(), of_image));
        let mut before = cpu.scratch(<T::Acc as Element>::DTYPE, if self.relu_masked { g.len() } else { 0 })?;
        if self.relu_masked {
            let y = Upcast::of(cpu, task.images_of(of.y.as_slice::<T>(), of_image))?;
            mask_relu(y.slice(), g, before.as_mut_slice::<T::Acc>());
            g = before.as_slice();
        }
        if !task.db.is_empty() {
            sum_rows(g, task.db);
        }
        f(task, g, index)
    }

    /// Computes the gradient of the convolution's result before the activation into `task.own`.
    fn pre_pool<T: Stored>(
        &self,
        cpu: &Cpu,
        of: &PooledGrad<'_, CpuBuffer>,
        task: &mut PartGrads<'_, T::Acc, T::Acc>,
    ) -> Result<()> {
        let (_, pool) = self.sized(task.images);
        self.before_activation::<T, _>(cpu, of, task, |task, g, index| {
            max_pool_grad_wide(&pool, g, index, task.own)
        })
    }

    /// Computes only the gradients of the weight and the bias; that of the convolution's result stays in cache.
    fn weight_grad<T: Stored>(
        &self,
        cpu: &Cpu,
        p: &ConvPoolParams,
        of: &PooledGrad<'_, CpuBuffer>,
        x: &[T],
        (dw, db): (&mut [T::Acc], &mut [T::Acc]),
    ) -> Result<()> {
        let [image, result, _] = self.sizes();
        let dtype = <T::Acc as Element>::DTYPE;
        let nothing: &mut [T] = &mut [];
        let (Forward::Registers(pooled), parts) = (Forward::<T::Acc>::choose(cpu, p, self), self.by_work()) else {
            return self.tasks(cpu, nothing, dw, db, |task| {
                let mut pre_pool = cpu.scratch(dtype, task.images * result)?;
                let (conv, _) = self.sized(task.images);
                self.pre_pool::<T>(
                    cpu,
                    of,
                    &mut PartGrads {
                        first: task.first,
                        images: task.images,
                        own: pre_pool.as_mut_slice(),
                        dw: &mut [],
                        db: task.db,
                    },
                )?;
                let x = Upcast::of(cpu, task.images_of(x, image))?;
                weight_grad(cpu, &conv, pre_pool.as_slice(), x.slice(), task.dw)
            });
        };
        let mut turned = cpu.scratch(dtype, dw.len())?;
        let turned = turned.as_mut_slice::<T::Acc>();
        parts.tasks(cpu, nothing, turned, db, |task| {
            parts.before_activation::<T, T>(cpu, of, task, |task, g, index| {
                let x = Upcast::of(cpu, task.images_of(x, image))?;
                pooled.weight_grad(cpu, x.slice(), (g, index), task.dw)
            })
        })?;
        pooled.transpose(turned, dw);
        Ok(())
    }
}

/// Sets `to[i]` to zero where `y[i] ≤ 0`, and to `g[i]` elsewhere, also where `y[i]` is NaN.
fn mask_relu<A: Scalar>(y: &[A], g: &[A], to: &mut [A]) {
    lanes::<A, _>(
        #[inline(always)]
        || {
            for ((to, &y), &g) in to.iter_mut().zip(y).zip(g) {
                *to = if y <= A::ZERO { A::ZERO } else { g };
            }
        },
    );
}

/// Sets `db[j]` to the sum of column `j` of the rows of `g`.
fn sum_rows<A: Scalar>(g: &[A], db: &mut [A]) {
    lanes::<A, _>(
        #[inline(always)]
        || {
            db.fill(A::ZERO);
            for row in g.chunks_exact(db.len()) {
                for (db, &g) in db.iter_mut().zip(row) {
                    *db += g;
                }
            }
        },
    );
}
