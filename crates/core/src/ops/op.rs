//! The ops of a backend by name: those that every backend has, and those that it may leave to compositions of them.

/// Declares [`Op`] with one row for each op: its name, the functions of the backend's traits that it stands for, and how
/// `kiln-nn` gets by without it.
macro_rules! ops {
    (
        primitives { $($(#[$pmeta:meta])* $primitive:ident = $pname:literal,)* }
        fused { $($(#[$fmeta:meta])* $fused:ident = $fname:literal,)* }
    ) => {
        /// An op of a [`Backend`](crate::Backend), for [`Runtime::supports`](crate::Runtime::supports). A fused op stands for its
        /// gradient too: a backend has both or neither.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $($(#[$pmeta])* $primitive,)*
            $($(#[$fmeta])* $fused,)*
        }

        impl Op {
            /// The ops that a backend has to implement.
            pub const PRIMITIVES: &'static [Op] = &[$(Op::$primitive),*];
            /// The ops that a backend may implement; `kiln-nn` composes the others of primitives.
            pub const FUSED: &'static [Op] = &[$(Op::$fused),*];

            /// The name of the function that computes it.
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
        /// [`ElementwiseOps::unary`](super::ElementwiseOps::unary)
        Unary = "unary",
        /// [`ElementwiseOps::binary`](super::ElementwiseOps::binary)
        Binary = "binary",
        /// [`ElementwiseOps::compare`](super::ElementwiseOps::compare)
        Compare = "compare",
        /// [`ElementwiseOps::select`](super::ElementwiseOps::select)
        Select = "select",
        /// [`ElementwiseOps::cast`](super::ElementwiseOps::cast)
        Cast = "cast",
        /// [`ElementwiseOps::fill`](super::ElementwiseOps::fill)
        Fill = "fill",
        /// [`ElementwiseOps::accumulate`](super::ElementwiseOps::accumulate)
        Accumulate = "accumulate",
        /// [`ReduceOps::reduce`](super::ReduceOps::reduce)
        Reduce = "reduce",
        /// [`ReduceOps::arg_reduce`](super::ReduceOps::arg_reduce)
        ArgReduce = "arg_reduce",
        /// [`ReduceOps::cumsum`](super::ReduceOps::cumsum)
        Cumsum = "cumsum",
        /// [`ReduceOps::top_k`](super::ReduceOps::top_k)
        TopK = "top_k",
        /// [`MatmulOps::matmul`](super::MatmulOps::matmul)
        Matmul = "matmul",
        /// [`ConvOps::conv`](super::ConvOps::conv)
        Conv = "conv",
        /// [`ConvOps::conv_data_grad`](super::ConvOps::conv_data_grad)
        ConvDataGrad = "conv_data_grad",
        /// [`ConvOps::conv_weight_grad`](super::ConvOps::conv_weight_grad)
        ConvWeightGrad = "conv_weight_grad",
        /// [`PoolOps::max_pool`](super::PoolOps::max_pool)
        MaxPool = "max_pool",
        /// [`IndexOps::view_read`](super::IndexOps::view_read)
        ViewRead = "view_read",
        /// [`IndexOps::view_write`](super::IndexOps::view_write)
        ViewWrite = "view_write",
        /// [`IndexOps::gather`](super::IndexOps::gather)
        Gather = "gather",
        /// [`IndexOps::scatter_add`](super::IndexOps::scatter_add)
        ScatterAdd = "scatter_add",
        /// [`RandomOps::random`](super::RandomOps::random)
        Random = "random",
        /// [`RandomOps::tick`](super::RandomOps::tick)
        Tick = "tick",
    }
    fused {
        /// The gradient of [`Op::Unary`], [`ElementwiseOps::unary_grad`](super::ElementwiseOps::unary_grad)
        UnaryGrad = "unary_grad",
        /// [`MatmulOps::linear`](super::MatmulOps::linear)
        Linear = "linear",
        /// The gradient of [`Op::MaxPool`] and its gradient, [`PoolOps::max_pool_grad`](super::PoolOps::max_pool_grad) and
        /// [`PoolOps::max_pool_gather`](super::PoolOps::max_pool_gather)
        MaxPoolGrad = "max_pool_grad",
        /// [`PoolOps::avg_pool`](super::PoolOps::avg_pool)
        AvgPool = "avg_pool",
        /// [`PoolOps::adaptive_avg_pool`](super::PoolOps::adaptive_avg_pool)
        AdaptiveAvgPool = "adaptive_avg_pool",
        /// [`ConvPoolOps::conv_max_pool`](super::ConvPoolOps::conv_max_pool)
        ConvMaxPool = "conv_max_pool",
        /// [`NormOps::group_norm`](super::NormOps::group_norm), which is batch, layer, RMS and instance norm too
        GroupNorm = "group_norm",
        /// [`NormOps::batch_norm_eval`](super::NormOps::batch_norm_eval)
        BatchNormEval = "batch_norm_eval",
        /// [`SoftmaxOps::softmax`](super::SoftmaxOps::softmax), and its logarithm
        Softmax = "softmax",
        /// [`AttentionOps::attention`](super::AttentionOps::attention)
        Attention = "attention",
        /// [`LossOps::cross_entropy`](super::LossOps::cross_entropy)
        CrossEntropy = "cross_entropy",
        /// [`IndexOps::index_select`](super::IndexOps::index_select) and its gradient
        /// [`IndexOps::index_add`](super::IndexOps::index_add)
        IndexSelect = "index_select",
        /// [`IndexOps::one_hot`](super::IndexOps::one_hot)
        OneHot = "one_hot",
        /// [`RandomOps::dropout`](super::RandomOps::dropout)
        Dropout = "dropout",
        /// [`OptimOps::sgd`](super::OptimOps::sgd)
        Sgd = "sgd",
        /// [`OptimOps::adam`](super::OptimOps::adam)
        Adam = "adam",
        /// [`OptimOps::rmsprop`](super::OptimOps::rmsprop)
        Rmsprop = "rmsprop",
        /// [`OptimOps::adagrad`](super::OptimOps::adagrad)
        Adagrad = "adagrad",
    }
}

impl Op {
    /// True if every backend has to implement the op.
    pub fn is_primitive(self) -> bool {
        Op::PRIMITIVES.contains(&self)
    }
}
