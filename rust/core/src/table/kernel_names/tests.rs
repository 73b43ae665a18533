use proptest::prelude::*;

use super::*;
use crate::table::builder::Builder;
use crate::test_tables;

/// What kernels of one short name are called.
fn called(short: &str, names: &[&str]) -> Vec<String> {
    let all = BTreeMap::from([(short, names.iter().copied().collect())]);
    let told = told_apart(&all);
    names.iter().map(|name| told.get(&(short, *name)).cloned().unwrap_or_else(|| short.to_owned())).collect()
}

#[test]
fn a_short_name_of_one_kernel_stays() {
    let triton = "triton_poi_fused_add_mul_0";
    assert_eq!(called(triton, &[triton]), [triton]);
    assert_eq!(called("saxpy", &["void saxpy<float>(int, float, T1 *)"]), ["saxpy"]);
    assert_eq!(called("nameless", &[]), [""; 0]);
    // What every kernel of a library is called says nothing even of one.
    assert_eq!(
        called("Kernel", &["void cutlass::Kernel<cutlass::gemm::kernel::Gemm<(int)1>>(T1::Params)"]),
        ["Kernel<Gemm>"]
    );
    assert_eq!(called("kernel", &["kernel(float *)"]), ["kernel"]);
}

#[test]
fn kernels_of_pytorch_are_told_by_their_functor() {
    let full = |vector: u8, functor: &str| {
        format!(
            "void at::native::vectorized_elementwise_kernel<(int){vector}, {functor}, std::array<char *, (unsigned \
             long)3>>(int, T2, T3)"
        )
    };
    let lambda = |function: &str, kind: &str, number: u8| {
        format!(
            "at::native::{function}(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::[lambda() \
             (instance {number})]::operator ()() const::[lambda({kind}) (instance 1)]"
        )
    };
    let names = [
        full(4, "at::native::CUDAFunctor_add<float>"),
        full(2, "at::native::CUDAFunctor_add<long>"),
        full(8, "at::native::CUDAFunctor_add<c10::BFloat16>"),
        full(
            4,
            "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>",
        ),
        full(2, "at::native::BinaryFunctor<long, long, long, at::native::binary_internal::MulFunctor<long>>"),
        full(4, "at::native::<unnamed>::AbsFunctor<float>"),
        full(4, &lambda("direct_copy_kernel_cuda", "float", 7)),
        full(4, &lambda("direct_copy_kernel_cuda", "c10::BFloat16", 12)),
        full(4, &lambda("neg_kernel_cuda", "float", 7)),
    ];
    let told = called("vectorized_elementwise_kernel", &names.each_ref().map(String::as_str));
    let expected = [
        "CUDAFunctor_add<float>",
        "CUDAFunctor_add<long>",
        "CUDAFunctor_add<BFloat16>",
        "BinaryFunctor<float>",
        "BinaryFunctor<long>",
        "AbsFunctor",
        // 60 characters less 29 are 31: 15, the dots, and 15.
        "direct_copy_ke…el_cuda(float)",
        "direct_copy_ke…cuda(BFloat16)",
        "neg_kernel_cuda",
    ];
    assert_eq!(told, expected.map(|part| format!("vectorized_elementwise_kernel<{part}>")));
}

#[test]
fn kernels_of_wrappers_are_told_by_what_they_wrap() {
    let cub = |operation: &str| {
        format!(
            "void cub::DeviceReduceKernel<cub::DeviceReducePolicy<float, float, int, cub::{operation}>::Policy600, float \
             *, float *, int, cub::{operation}>(T2, T3, T4, cub::GridEvenShare<T4>, T5)"
        )
    };
    assert_eq!(
        called("DeviceReduceKernel", &[&cub("Sum"), &cub("Max")]),
        ["DeviceReduceKernel<Sum>", "DeviceReduceKernel<Max>"]
    );
    let kokkos = |function: &str, number: u8| {
        format!(
            "void Kokkos::Impl::cuda_parallel_launch_local_memory<Kokkos::Impl::ParallelFor<{function}(double, \
             Kokkos::View<double *>)::[lambda(int) (instance {number})], Kokkos::RangePolicy<Kokkos::Cuda>, \
             Kokkos::Cuda>>(T1)"
        )
    };
    let names = [kokkos("advect", 1), kokkos("advect", 2), kokkos("Mesh::smooth", 1)];
    assert_eq!(
        called("cuda_parallel_launch_local_memory", &names.each_ref().map(String::as_str)),
        [
            "cuda_parallel_launch_local_memory<advect::lambda 1>",
            "cuda_parallel_launch_local_memory<advect::lambda 2>",
            "cuda_parallel_launch_local_memory<smooth>",
        ]
    );
    // The suite calls the enclosing function of all kernels the same.
    let raja = |class: &str| {
        format!(
            "void RAJA::policy::cuda::impl::forall_cuda_kernel<(unsigned long)256, RAJA::Iterators::numeric_iterator<long, \
             long, long *>, rajaperf::stream::{class}::runCudaVariantImpl<(unsigned long)256>(rajaperf::VariantID)::\
             [lambda(long) (instance 1)], long>(T3, T2, T4)"
        )
    };
    assert_eq!(
        called("forall_cuda_kernel", &[&raja("ADD"), &raja("TRIAD")]),
        ["forall_cuda_kernel<ADD>", "forall_cuda_kernel<TRIAD>"]
    );
    // As other demanglers write lambdas.
    let thrust = |number: u8| {
        format!("void run<main::{{lambda(int)#{number}}}>(main::{{lambda(int)#{number}}}, (anonymous namespace)::Grid)")
    };
    assert_eq!(called("run", &[&thrust(1), &thrust(2)]), ["run<lambda 1>", "run<lambda 2>"]);
}

#[test]
fn names_without_template_arguments_are_told_by_scope_and_parameters() {
    assert_eq!(called("copy", &["a::copy(float *)", "b::copy(float *)"]), ["a::copy", "b::copy"]);
    assert_eq!(
        called("copy", &["copy(float *, int)", "copy(const double *, int)"]),
        ["copy(float *)", "copy(const double *)"]
    );
    assert_eq!(called("f", &["void f<A>()", "void f<A, B>()"]), ["f<A>", "f<B>"]);
    assert_eq!(called("f", &["void f<(bool)0>()", "void f<(bool)1>()", "void f()"]), ["f<0>", "f<1>", "f"]);
}

#[test]
fn what_is_too_long_is_cut_and_what_is_alike_is_numbered() {
    let long = |c: &str| format!("void wrapper_kernel<{}>()", c.repeat(100));
    let told = called("wrapper_kernel", &[&long("ä"), &long("ö")]);
    // 60 characters less 14 are 46: 22, the dots, and 23.
    assert_eq!(told[0], format!("wrapper_kernel<{}…{}>", "ä".repeat(21), "ä".repeat(22)));
    assert_eq!(told[0].chars().count(), MOST_CHARACTERS);
    let ends = |c: &str| format!("void wrapper_kernel<{}{c}{}>()", "a".repeat(50), "a".repeat(50));
    let told = called("wrapper_kernel", &[&ends("b"), &ends("c")]);
    assert_eq!(told[1], format!("{} #2", told[0]));
    // Pseudonyms, and names that no demangler wrote, say nothing.
    assert_eq!(called("k", &["kernel-1", "void other<A>()"]), ["k", "k #2"]);
    // One kernel is called what another would be.
    let all = BTreeMap::from([
        ("f", BTreeSet::from(["void f<A>()", "void f<B>()"])),
        ("f<A>", BTreeSet::from(["f<A>"])),
    ]);
    let told = told_apart(&all);
    let texts: Vec<&str> = all["f"].iter().map(|full| told[&("f", *full)].as_str()).collect();
    assert_eq!((texts, told.len()), (vec!["f<A> #2", "f<B>"], 2));
}

#[test]
fn rows_get_the_name_of_their_kernel() {
    let rows = [
        (Some("f"), Some("void f<A>()")),
        (None, Some("void f<A>()")),
        (Some("g"), Some("void g<A>()")),
        (Some("f"), Some("void f<B>()")),
        (Some("f"), None),
        (Some("f"), Some("void f<A>()")),
    ];
    let spans: Vec<(i64, i64)> = (0..rows.len() as i64).map(|row| (row, row + 1)).collect();
    let table = |rows: &[(Option<&str>, Option<&str>)]| {
        test_tables::of_one_stream(&KERNELS, &spans)
            .put_names("name", rows.iter().map(|row| row.1))
            .put_names("short_name", rows.iter().map(|row| row.0))
            .finish(rows.len())
            .unwrap()
    };
    let told = tell_apart(&table(&rows)).unwrap().unwrap();
    let columns = Columns::new(&KERNELS, &told);
    let (short, full) = (columns.names("short_name").unwrap(), columns.names("name").unwrap());
    let names: Vec<_> = (0..rows.len()).map(|row| short.get(row)).collect();
    assert_eq!(names, [Some("f<A>"), None, Some("g"), Some("f<B>"), Some("f"), Some("f<A>")]);
    assert_eq!(full.get(3), Some("void f<B>()"));
    assert!(tell_apart(&told).unwrap().is_none());
    let ordinary: Vec<_> = rows.iter().map(|_| (Some("g"), Some("void g<A>()"))).collect();
    assert!(tell_apart(&table(&ordinary)).unwrap().is_none());
    assert!(tell_apart(&Builder::new(&KERNELS).finish(0).unwrap()).unwrap().is_none());
}

/// Template arguments as programs have them.
fn argument() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[A-C]",
        "ns::[a-c]{1,40}",
        "\\(int\\)[0-3]",
        Just("float".to_owned()),
        Just("const char *".to_owned()),
        Just("<unnamed>::F".to_owned()),
        "g\\(int\\)::\\[lambda\\(float\\) \\(instance [1-3]\\)\\]",
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop::collection::vec(inner, 1..3).prop_map(|all| format!("T<{}>", all.join(", ")))
    })
}

fn check(short: &str, names: &BTreeSet<String>) -> std::result::Result<(), TestCaseError> {
    let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let told = told_apart(&BTreeMap::from([(short, names.clone())]));
    let all: BTreeMap<&str, BTreeSet<&str>> = names
        .iter()
        .map(|full| (told.get(&(short, *full)).map_or(short, String::as_str), BTreeSet::from([*full])))
        .collect();
    prop_assert_eq!(all.len(), names.len());
    let most = short.chars().count() + 2 * MOST_CHARACTERS + " #99".len();
    prop_assert!(all.keys().all(|name| name.contains(short) && name.chars().count() <= most));
    // Told apart they are what they are called.
    prop_assert!(told_apart(&all).is_empty());
    Ok(())
}

proptest! {
    #[test]
    fn every_kernel_of_a_wrapper_has_a_name_of_its_own(
        lists in prop::collection::btree_set(prop::collection::vec(argument(), 0..4), 2..12),
    ) {
        check("launch", &lists.iter().map(|list| format!("void n::launch<{}>(T1)", list.join(", "))).collect())?;
    }

    #[test]
    fn text_that_is_no_name_is_told_apart_as_well(
        names in prop::collection::btree_set("[a-c<>()\\[\\]{},: *&#0-9ä'-]{0,40}|\\PC{0,20}", 2..12),
    ) {
        check("f", &names)?;
    }
}
