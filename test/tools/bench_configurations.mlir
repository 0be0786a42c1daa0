// RUN: mxcomp-bench --configurations 16x64x128 --json %t.json --csv %t.csv --picture %t.pictures --jobs=1 | filecheck %s
// RUN: filecheck %s --input-file %t.csv --check-prefix=CSV
// RUN: ls %t.pictures | filecheck %s --check-prefix=PICTURES
// RUN: mxcomp-bench 16x64x128 32x64x128 --csv %t.matmuls.csv --picture %t.pictures
// RUN: filecheck %s --input-file %t.matmuls.csv --check-prefix=MATMULS

// Every dispatch in six configurations.

// CHECK: 16x64x128 f4E2M1FN × f4E2M1FN → f32, modelled
// CHECK: dispatch {{.*}}no dt {{.*}}no dt + uk {{.*}}dt {{.*}}dt + uk {{.*}}IREE dt {{.*}}IREE dt + uk
// CHECK: matmul {{.*}} µs
// CHECK: encode LHS {{.*}} µs
// CHECK: encode RHS {{.*}} µs
// CHECK: encode LHS scales {{.*}} µs
// CHECK: encode RHS scales {{.*}} µs
// CHECK: end to end {{.*}} µs

// CSV: subject,configuration,part,kernel,source,us,low,high,bound,flops,unique_bytes
// CSV-NEXT: 16x64x128 f4E2M1FN × f4E2M1FN → f32,no dt,matmul,matmul_dispatch_0{{.*}},modelled,
// PICTURES: 16x64x128-bars.png
// PICTURES-NEXT: 16x64x128-roofline.png
// MATMULS: m,n,k,tile_m,tile_n,kernel,ours_us,low,high,bound,peer_us,source
// MATMULS-NEXT: 16,64,128,0,0,mx_f4E2M1FN_f4E2M1FN_f32_{{.*}},modelled
