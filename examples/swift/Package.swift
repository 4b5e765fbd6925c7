// swift-tools-version: 6.2
import PackageDescription

let earshot = Target.Dependency.product(name: "EarshotClient", package: "earshot")

let package = Package(
    name: "earshot-examples",
    // Your own program uses .package(url: "…", from: "…", traits: []). Without the trait `Bus` only the library is built.
    dependencies: [.package(name: "earshot", path: "../..", traits: [])],
    targets: [
        .target(name: "Command", dependencies: [earshot]),
        .executableTarget(name: "fetch", dependencies: [earshot, "Command"]),
        .executableTarget(name: "gallery", dependencies: [earshot, "Command"]),
        .executableTarget(name: "watch", dependencies: [earshot, "Command"]),
    ]
)
