import Testing

@testable import EarshotCore

/// The phases of a request.
struct InterestTests {
    @Test(arguments: Interest.Phase.allCases, Interest.Phase.allCases)
    func `a request makes the transitions of the diagram and no others`(from: Interest.Phase, to: Interest.Phase) {
        let next: Set<Interest.Phase> =
            switch from {
            case .open: [.delivering, .held, .entering, .resting, .recording]
            case .held: [.delivering]
            case .entering: [.open, .recording, .resting, .delivering]
            case .recording: [.delivering, .held, .resting, .entering]
            case .resting: [.recording, .delivering]
            case .delivering: [.recording, .resting]
            }
        #expect(Interest.isLegal(from: from, to: to) == next.contains(to))
    }
}
