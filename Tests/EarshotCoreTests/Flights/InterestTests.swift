import Testing

@testable import EarshotCore

/// The phases of a request.
struct InterestTests {
    @Test(arguments: Interest.Phase.allCases, Interest.Phase.allCases)
    func `a request makes the transitions of the diagram and no others`(from: Interest.Phase, to: Interest.Phase) {
        let next: Set<Interest.Phase> =
            switch from {
            case .open:
                [.delivering, .awaitingSubscriber, .awaitingDurableAcceptance, .outcomeOnlyOnDisk, .writingOutcome]
            case .awaitingSubscriber: [.delivering]
            case .awaitingDurableAcceptance: [.open, .writingOutcome, .outcomeOnlyOnDisk, .delivering]
            case .writingOutcome: [.delivering, .awaitingSubscriber, .outcomeOnlyOnDisk, .awaitingDurableAcceptance]
            case .outcomeOnlyOnDisk: [.writingOutcome, .delivering]
            case .delivering: [.writingOutcome, .outcomeOnlyOnDisk]
            }
        #expect(Interest.isLegal(from: from, to: to) == next.contains(to))
    }
}
