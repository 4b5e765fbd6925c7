@testable import EarshotCore

/// Handles of records that only a test knows, written as their places.
extension Handle: ExpressibleByIntegerLiteral {
    public init(integerLiteral place: Int32) { self.init(place: place) }
}

extension Handle: Strideable {
    func distance(to other: Handle) -> Int { other.index - index }
    func advanced(by places: Int) -> Handle { Handle(index: index + places) }
}
