// swift-tools-version: 6.2
import PackageDescription

let package = Package(
    name: "bench-bus",
    dependencies: [.package(name: "earshot", path: "../../../.."), .package(path: "../asking")],
    targets: [
        .executableTarget(
            name: "ask-earshot",
            dependencies: [
                .product(name: "EarshotClient", package: "earshot"), .product(name: "Asking", package: "asking"),
            ])
    ]
)
