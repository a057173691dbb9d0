//! The ops of a backend by name: primitives, which every backend has, and fused ops, which may be composed of primitives.

/// Declares [`Op`] with one row for each op: its documentation, its variant, and the name of its function.
macro_rules! ops {
    (
        primitives { $($(#[$pmeta:meta])* $primitive:ident = $pname:literal,)* }
        fused { $($(#[$fmeta:meta])* $fused:ident = $fname:literal,)* }
    ) => {
        /// An op of a [`Backend`](crate::Backend), for [`Runtime::supports`](crate::Runtime::supports). A fused op includes its
        /// gradient: a backend implements both or neither.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $($(#[$pmeta])* $primitive,)*
            $($(#[$fmeta])* $fused,)*
        }

        impl Op {
            /// The ops that a backend must implement.
            pub const PRIMITIVES: &'static [Op] = &[$(Op::$primitive),*];
            /// The ops that a backend may implement; `kiln-nn` composes the others of primitives.
            pub const FUSED: &'static [Op] = &[$(Op::$fused),*];

            /// The name of the function that computes the op.
            pub fn name(self) -> &'static str {
                match self {
                    $(Op::$primitive => $pname,)*
                    $(Op::$fused => $fname,)*
                }
            }
        }
    };
}

ops! {
    primitives {
        /// [`ElementwiseOps::unary`](crate::ops::ElementwiseOps::unary)
        Unary = "unary",
        /// [`ElementwiseOps::binary`](crate::ops::ElementwiseOps::binary)
        Binary = "binary",
        /// [`ElementwiseOps::compare`](crate::ops::ElementwiseOps::compare)
        Compare = "compare",
        /// [`ElementwiseOps::select`](crate::ops::ElementwiseOps::select)
        Select = "select",
        /// [`ElementwiseOps::cast`](crate::ops::ElementwiseOps::cast)
        Cast = "cast",
        /// [`ElementwiseOps::fill`](crate::ops::ElementwiseOps::fill)
        Fill = "fill",
        /// [`ElementwiseOps::accumulate`](crate::ops::ElementwiseOps::accumulate)
        Accumulate = "accumulate",
        /// [`ReduceOps::reduce`](crate::ops::ReduceOps::reduce)
        Reduce = "reduce",
        /// [`ReduceOps::arg_reduce`](crate::ops::ReduceOps::arg_reduce)
        ArgReduce = "arg_reduce",
        /// [`ReduceOps::cumsum`](crate::ops::ReduceOps::cumsum)
        Cumsum = "cumsum",
        /// [`ReduceOps::top_k`](crate::ops::ReduceOps::top_k)
        TopK = "top_k",
        /// [`MatmulOps::matmul`](crate::ops::MatmulOps::matmul)
        Matmul = "matmul",
        /// [`ConvOps::conv`](crate::ops::ConvOps::conv)
        Conv = "conv",
        /// [`ConvOps::conv_data_grad`](crate::ops::ConvOps::conv_data_grad)
        ConvDataGrad = "conv_data_grad",
        /// [`ConvOps::conv_weight_grad`](crate::ops::ConvOps::conv_weight_grad)
        ConvWeightGrad = "conv_weight_grad",
        /// [`PoolOps::max_pool`](crate::ops::PoolOps::max_pool)
        MaxPool = "max_pool",
        /// [`IndexOps::view_read`](crate::ops::IndexOps::view_read)
        ViewRead = "view_read",
        /// [`IndexOps::view_write`](crate::ops::IndexOps::view_write)
        ViewWrite = "view_write",
        /// [`IndexOps::gather`](crate::ops::IndexOps::gather)
        Gather = "gather",
        /// [`IndexOps::scatter_add`](crate::ops::IndexOps::scatter_add)
        ScatterAdd = "scatter_add",
        /// [`IntegerOps::integer_binary`](crate::ops::IntegerOps::integer_binary)
        IntegerBinary = "integer_binary",
        /// [`IntegerOps::integer_reduce`](crate::ops::IntegerOps::integer_reduce)
        IntegerReduce = "integer_reduce",
        /// [`IntegerOps::integer_scatter`](crate::ops::IntegerOps::integer_scatter)
        IntegerScatter = "integer_scatter",
        /// [`RandomOps::random`](crate::ops::RandomOps::random)
        Random = "random",
        /// [`RandomOps::tick`](crate::ops::RandomOps::tick)
        Tick = "tick",
    }
    fused {
        /// [`ElementwiseOps::cast_each`](crate::ops::ElementwiseOps::cast_each)
        CastEach = "cast_each",
        /// [`IndexOps::join`](crate::ops::IndexOps::join)
        Join = "join",
        /// [`IndexOps::split`](crate::ops::IndexOps::split)
        Split = "split",
        /// [`RandomOps::tick_each`](crate::ops::RandomOps::tick_each)
        TickEach = "tick_each",
        /// The gradient of [`Op::Unary`], [`ElementwiseOps::unary_grad`](crate::ops::ElementwiseOps::unary_grad)
        UnaryGrad = "unary_grad",
        /// [`ReduceOps::add_correct`](crate::ops::ReduceOps::add_correct), which has no gradient
        AddCorrect = "add_correct",
        /// [`MatmulOps::linear`](crate::ops::MatmulOps::linear) and its gradient
        /// [`MatmulOps::linear_grad`](crate::ops::MatmulOps::linear_grad)
        Linear = "linear",
        /// The gradient of [`Op::MaxPool`] and its gradient, [`PoolOps::max_pool_grad`](crate::ops::PoolOps::max_pool_grad) and
        /// [`PoolOps::max_pool_gather`](crate::ops::PoolOps::max_pool_gather)
        MaxPoolGrad = "max_pool_grad",
        /// [`PoolOps::avg_pool`](crate::ops::PoolOps::avg_pool)
        AvgPool = "avg_pool",
        /// [`PoolOps::adaptive_avg_pool`](crate::ops::PoolOps::adaptive_avg_pool)
        AdaptiveAvgPool = "adaptive_avg_pool",
        /// [`ConvOps::conv_moments`](crate::ops::ConvOps::conv_moments), whose gradient is that of [`Op::Conv`]
        ConvMoments = "conv_moments",
        /// [`ConvOps::conv_norm_grad`](crate::ops::ConvOps::conv_norm_grad) and
        /// [`NormOps::batch_norm_data_grad`](crate::ops::NormOps::batch_norm_data_grad)
        ConvNormGrad = "conv_norm_grad",
        /// [`ConvPoolOps::conv_max_pool`](crate::ops::ConvPoolOps::conv_max_pool)
        ConvMaxPool = "conv_max_pool",
        /// [`NormOps::group_norm`](crate::ops::NormOps::group_norm), which is batch, layer, RMS and instance norm too
        GroupNorm = "group_norm",
        /// [`NormOps::batch_norm`](crate::ops::NormOps::batch_norm), its result again
        /// [`NormOps::batch_norm_apply`](crate::ops::NormOps::batch_norm_apply), and its gradient
        /// [`NormOps::batch_norm_grad`](crate::ops::NormOps::batch_norm_grad)
        BatchNorm = "batch_norm",
        /// [`NormOps::batch_norm_eval`](crate::ops::NormOps::batch_norm_eval)
        BatchNormEval = "batch_norm_eval",
        /// [`SoftmaxOps::softmax`](crate::ops::SoftmaxOps::softmax), and its logarithm
        Softmax = "softmax",
        /// [`AttentionOps::attention`](crate::ops::AttentionOps::attention)
        Attention = "attention",
        /// [`AttentionOps::dot_product_attention`](crate::ops::AttentionOps::dot_product_attention)
        DotProductAttention = "dot_product_attention",
        /// [`LossOps::cross_entropy`](crate::ops::LossOps::cross_entropy), its mean and the gradients of both
        CrossEntropy = "cross_entropy",
        /// [`LossOps::ctc_loss`](crate::ops::LossOps::ctc_loss)
        CtcLoss = "ctc_loss",
        /// [`IndexOps::index_select`](crate::ops::IndexOps::index_select) and its gradient
        /// [`IndexOps::index_add`](crate::ops::IndexOps::index_add)
        IndexSelect = "index_select",
        /// [`IndexOps::one_hot`](crate::ops::IndexOps::one_hot)
        OneHot = "one_hot",
        /// [`IntegerOps::integer_cumsum`](crate::ops::IntegerOps::integer_cumsum)
        IntegerCumsum = "integer_cumsum",
        /// [`RandomOps::dropout`](crate::ops::RandomOps::dropout)
        Dropout = "dropout",
        /// [`RecurrentOps::recurrent`](crate::ops::RecurrentOps::recurrent)
        Recurrent = "recurrent",
        /// [`ImageOps::crop_images`](crate::ops::ImageOps::crop_images)
        CropImages = "crop_images",
        /// [`ResidualOps::residual_norm`](crate::ops::ResidualOps::residual_norm) and
        /// [`ResidualOps::residual_add`](crate::ops::ResidualOps::residual_add)
        Residual = "residual",
        /// [`OptimOps::sgd`](crate::ops::OptimOps::sgd)
        Sgd = "sgd",
        /// [`OptimOps::adam`](crate::ops::OptimOps::adam)
        Adam = "adam",
        /// [`OptimOps::rmsprop`](crate::ops::OptimOps::rmsprop)
        Rmsprop = "rmsprop",
        /// [`OptimOps::adagrad`](crate::ops::OptimOps::adagrad)
        Adagrad = "adagrad",
        /// [`OptimOps::grad_norm`](crate::ops::OptimOps::grad_norm)
        GradNorm = "grad_norm",
        /// [`OptimOps::unscale`](crate::ops::OptimOps::unscale)
        Unscale = "unscale",
    }
}

impl Op {
    /// True if every backend must implement the op.
    pub fn is_primitive(self) -> bool {
        Op::PRIMITIVES.contains(&self)
    }
}
