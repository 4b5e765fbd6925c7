// swift-tools-version: 6.2
import PackageDescription

let package = Package(
    name: "bench-bus",
    dependencies: [.package(name: "earshot", path: "../../../.."), .package(path: "../load")],
    targets: [
        .executableTarget(
            name: "load-earshot",
            dependencies: [
                .product(name: "EarshotClient", package: "earshot"), .product(name: "Load", package: "load"),
            ])
    ]
)
