//! Every suite that a backend has to pass, in one list.

/// Makes a test of every suite. The argument makes the backend, and is written with paths that hold in any module:
///
/// ```text
/// kiln_testkit::suites!(kiln_cpu::Cpu::poisoned());
/// ```
#[macro_export]
macro_rules! suites {
    ($backend:expr) => {
        $crate::every_suite! { tests $backend }
    };
}

/// Hands the list to what follows its name: `tests` and a backend for tests of it, `names` for the paths of the suites.
#[doc(hidden)]
#[macro_export]
macro_rules! every_suite {
    ($($to:tt)*) => {
        $crate::with_suites! {
            { $($to)* }
            ops::attention { self_attention, cached, dot_product, refused }
            ops::conv { conv, conv_transpose, refused }
            ops::conv_pool { conv_max_pool, as_two_ops, refused }
            ops::einsum { einsum, refused }
            ops::elementwise {
                unary, unary_accuracy, unary_slope_accuracy, casts, add, sub, mul, div, pow, atan2, remainder, prelu, extremes, ties, comparisons, select,
                quotients, composed, composed_edges,                bad_input
            }
            ops::fft { along_one_axis, along_several, of_any_length, refused }
            ops::image { crop_images, composed, refused }
            ops::index {
                views, indexing, triangles, pixels, windows, masks, concat, stack, pad, tile, gather, scatter_add, scatter, index_select, index_add, index_copy, embedding, bags, one_hot, bad_input
            }
            ops::integer { arithmetic, logic, reductions, sorted, several_index_tensors, index_put, refused }
            ops::interpolate { interpolate, grid_sample, refused }
            ops::loss { cross_entropy, linear_cross_entropy, linear_cross_entropy_refused, cross_entropy_from_probabilities, nll_loss, pointwise, limits, composed, composed_refused, refused, ctc, ctc_as_pytorch, ctc_refused }
            ops::matmul { matmul, matmul_vectors, linear, linear_joined, fused_activations, as_two_ops, targets, remade, refused }
            ops::modulated_conv { modulated_conv2d, refused }
            ops::norm { batch_norm, batch_norm_eval, mixed_batch_norm, running_statistics, batch_norm_and_relu, convolution_and_batch_norm, batch_norm_and_convolution, recomputed_batch_norm, layer_norm, rms_norm, group_norm, instance_norm, refused }
            ops::optim { sgd, adam, rmsprop, adagrad, left_out, clipped }
            ops::pool { max_pool, avg_pool, avg_pool_by, adaptive_avg_pool, adaptive_max_pool, ties_and_nan, refused }
            ops::random { distributions, dropout, bad_input }
            ops::recurrent { sequences, refused }
            ops::reduce { sum_and_mean, prod, extremes, var_and_std, norms, nuclear_norm, correct, correct_refused, along_one_axis, sorted_and_multiplied, ties_and_limits, refused }
            ops::residual { residual_norm, residual_add, dropped, norm_again, refused }
            ops::rotary { rotary, refused }
            ops::softmax { softmax, refused }
            ops::upfirdn2d { upfirdn2d, refused }
            ::detection { overlaps, losses, coded, regions, refused }
            ::golden { pytorch, edges }
            ::halves { rounded_once, functions, losses }
            ::misfit { refuses_misfits }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! with_suites {
    ({ tests $backend:expr } $($($parent:ident)? :: $family:ident { $($suite:ident),* $(,)? })*) => {$(
        mod $family {
            use $crate::$($parent::)?$family as suites;
            $(
                #[test]
                fn $suite() {
                    suites::$suite(&$backend);
                }
            )*
        }
    )*};
    ({ names } $($($parent:ident)? :: $family:ident { $($suite:ident),* $(,)? })*) => {
        &[$($((stringify!($family), stringify!($suite))),*),*]
    };
}

/// The module and the name of every suite.
pub const SUITES: &[(&str, &str)] = every_suite! { names };
