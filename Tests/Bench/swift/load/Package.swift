// swift-tools-version: 6.2
import PackageDescription

// Common part of the two clients. Each client is a separate package, so that its build needs only its dependencies.
let package = Package(
    name: "load",
    products: [.library(name: "Load", targets: ["Load"])],
    targets: [.target(name: "Load")]
)
