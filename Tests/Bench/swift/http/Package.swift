// swift-tools-version: 6.2
import PackageDescription

let package = Package(
    name: "bench-http",
    dependencies: [
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.30.0"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.30.0"), .package(path: "../load"),
    ],
    targets: [
        .executableTarget(
            name: "load-http",
            dependencies: [
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "Load", package: "load"),
            ])
    ]
)
