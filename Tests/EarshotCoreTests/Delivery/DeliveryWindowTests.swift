import Testing

@testable import EarshotCore

extension DeliveryWindow {
    /// Withdraws terminals without slices.
    ///
    /// - Parameter weigh: returns the weight of a terminal to withdraw, and its outcome if it counts; nil to keep it.
    /// - Returns: the withdrawn terminals.
    fileprivate mutating func withdraw(_ weigh: (DueTerminal) -> (ByteWeight, CountedOutcome?)?) -> [DueTerminal] {
        beginWithdrawal()
        var withdrawn: [DueTerminal] = []
        while let due = nextToScan {
            guard due != .withdrawn, let (weight, outcome) = weigh(due) else {
                keepScannedTerminal()
                continue
            }
            withdrawn.append(due)
            withdrawScannedTerminal(weight, counting: outcome)
        }
        endWithdrawal()
        return withdrawn
    }
}

/// The delivery window in isolation: each event in each phase of the window and of a terminal, its bounds and its
/// watch.
struct DeliveryWindowTests {
    private typealias Weight = DeliveryWindow.ByteWeight

    private static let phases: [DeliveryWindow.Phase] = [.detached, .open, .blocked, .ended]

    private static func due(_ number: Int) -> DueTerminal { DueTerminal(uncounted: Handle(slabIndex: number)) }

    /// An open window with terminals 1, 2, … due, each of 1 byte of text and 10 of body.
    private static func window(size: Int = 10, terminals: Int = 0, sent: Int = 0) -> DeliveryWindow {
        var window = DeliveryWindow()
        window.attach(size: size)
        for number in 0..<terminals { window.append(due(number + 1), Weight(failureTextBytes: 1, bodyBytes: 10)) }
        for _ in 0..<sent { _ = window.popNextToSend() }
        return window
    }

    private static func window(in phase: DeliveryWindow.Phase) -> DeliveryWindow {
        switch phase {
        case .detached: return DeliveryWindow()
        case .open: return window(terminals: 2, sent: 2)
        case .blocked:
            var window = window(terminals: 2, sent: 2)
            window.blockAtUnsent(sequence: 2)
            return window
        case .ended:
            var window = window(terminals: 2, sent: 2)
            window.end()
            return window
        }
    }

    private func numbers(_ window: DeliveryWindow) -> [Int] { window.dueTerminals.map { number($0) } }

    /// The interest of a terminal; -1 for a withdrawn one, -2 for an owed failure.
    private func number(_ entry: DueTerminal) -> Int {
        switch entry.kind {
        case .uncountedTerminal(let interest), .countedTerminal(let interest): interest.slabIndex
        case .compactFailure: -2
        case .withdrawn: -1
        }
    }

    // MARK: Phases of the window

    @Test func `the diagram of the window has these transitions and no others`() {
        let legal = Self.phases.map { from in Self.phases.map { DeliveryWindow.isLegal(from: from, to: $0) } }
        #expect(
            legal == [
                [false, true, false, true], [true, false, true, true], [true, true, true, true],
                [false, false, false, false],
            ])
    }

    enum Event: CaseIterable {
        case attach, detach, refuse, unblock, end
    }

    @Test(
        arguments: [
            (.attach, [.open, nil, nil, nil]), (.detach, [nil, .detached, .detached, nil]),
            (.refuse, [.detached, .blocked, .blocked, .ended]), (.unblock, [.detached, .open, .open, .ended]),
            (.end, [.ended, .ended, .ended, nil]),
        ] as [(Event, [DeliveryWindow.Phase?])])
    func `each event in each phase leads where the diagram says`(event: Event, expected: [DeliveryWindow.Phase?]) {
        for (phase, expected) in zip(Self.phases, expected) {
            guard let expected else { continue }
            var window = Self.window(in: phase)
            #expect(window.phase == phase)
            switch event {
            case .attach: window.attach(size: 1)
            case .detach: window.detach()
            case .refuse: window.blockAtUnsent(sequence: 1)
            case .unblock: #expect(window.unblock() == (phase == .blocked))
            case .end: window.end()
            }
            #expect(window.phase == expected)
            #expect(window.checkInvariants() == [])
        }
    }

    @Test(arguments: phases) func `only an open window sends, and others start no work`(phase: DeliveryWindow.Phase) {
        var window = Self.window(in: phase)
        window.append(Self.due(3), Weight())
        #expect(window.isFull == (phase != .open))
        #expect(window.isClosed == (phase != .open))
        #expect((window.popNextToSend() != nil) == (phase == .open))
    }

    // MARK: Phases of a terminal

    /// Phase of terminal 1. Terminal 2 behind it waits.
    enum State: CaseIterable {
        case waiting, sent
        /// Received on an earlier connection, and waiting again.
        case numbered
        /// Numbered, and withdrawn behind a terminal that was sent again.
        case withdrawn
    }

    private static func window(_ place: State) -> DeliveryWindow {
        switch place {
        case .waiting: return window(terminals: 2)
        case .sent: return window(terminals: 2, sent: 1)
        case .numbered:
            var window = window(terminals: 2, sent: 1)
            window.detach()
            window.attach(size: 10)
            return window
        case .withdrawn:
            var window = window()
            for number in [0, 1, 2] { window.append(due(number), Weight(failureTextBytes: 1, bodyBytes: 10)) }
            for _ in 0..<2 { _ = window.popNextToSend() }
            window.detach()
            window.attach(size: 10)
            _ = window.popNextToSend()
            _ = window.withdraw { $0 == due(1) ? (Weight(failureTextBytes: 1, bodyBytes: 10), nil) : nil }
            return window
        }
    }

    enum Step: CaseIterable {
        case take, refuse, removeFirst, withdraw, detach
    }

    private static func apply(_ step: Step, to window: inout DeliveryWindow) -> [DueTerminal] {
        switch step {
        case .take: return window.popNextToSend().map { [$0.entry] } ?? []
        case .refuse: window.blockAtUnsent(sequence: 1)
        case .removeFirst: window.removeFirst(Weight(failureTextBytes: 1, bodyBytes: 10), counting: nil)
        case .withdraw:
            return window.withdraw { $0 == due(1) ? (Weight(failureTextBytes: 1, bodyBytes: 10), nil) : nil }
        case .detach: window.detach()
        }
        return []
    }

    /// Entries returned, entries left, and the counters sent, numbered and acknowledged.
    private static func expected(_ step: Step, _ place: State) -> ([Int], [Int], [Int]) {
        switch (step, place) {
        case (.take, .waiting): ([1], [1, 2], [1, 0, 0])
        case (.take, .sent): ([2], [1, 2], [2, 0, 0])
        case (.take, .numbered): ([1], [1, 2], [1, 1, 0])
        case (.take, .withdrawn): ([-1], [0, -1, 2], [2, 2, 0])
        case (.refuse, .waiting), (.refuse, .sent): ([], [1, 2], [0, 0, 0])
        case (.refuse, .numbered): ([], [1, 2], [0, 1, 0])
        case (.refuse, .withdrawn): ([], [0, -1, 2], [0, 2, 0])
        case (.removeFirst, .waiting), (.removeFirst, .sent), (.removeFirst, .numbered): ([], [2], [0, 0, 1])
        // The withdrawn one is removed together with the terminal before it.
        case (.removeFirst, .withdrawn): ([], [2], [0, 0, 2])
        case (.withdraw, .waiting): ([1], [2], [0, 0, 0])
        case (.withdraw, .sent): ([], [1, 2], [1, 0, 0])
        // The number counts as acknowledged, because no terminal precedes it.
        case (.withdraw, .numbered): ([1], [2], [0, 0, 1])
        case (.withdraw, .withdrawn): ([], [0, -1, 2], [1, 2, 0])
        case (.detach, .waiting): ([], [1, 2], [0, 0, 0])
        case (.detach, .sent), (.detach, .numbered): ([], [1, 2], [0, 1, 0])
        case (.detach, .withdrawn): ([], [0, -1, 2], [0, 2, 0])
        }
    }

    @Test(arguments: Step.allCases, State.allCases)
    func `each step leaves a terminal where the diagram says`(step: Step, place: State) {
        var window = Self.window(place)
        let returned = Self.apply(step, to: &window).map { number($0) }
        let expected = Self.expected(step, place)
        #expect(returned == expected.0)
        #expect(numbers(window) == expected.1)
        #expect([window.sentCount, window.previouslySentCount, Int(window.lastAcknowledgedSequence)] == expected.2)
        let left = expected.1.count { $0 >= 0 }
        #expect(window.dueTerminalCount == left)
        #expect(window.byteWeight == Weight(failureTextBytes: left, bodyBytes: 10 * left))
        #expect(window.checkInvariants() == [])
    }

    @Test func `an outcome that waiting terminals share counts once, until the last of them has left`() {
        var window = Self.window(size: 1, terminals: 1, sent: 1)
        let (shared, other) = (Self.outcome(5, 100), Self.outcome(6, 30))
        for (number, outcome) in [(2, shared), (3, other), (4, shared)] {
            window.append(Self.due(number), Weight(bodyBytes: 10))
            window.replaceLast(with: DueTerminal(counted: Handle(slabIndex: number)), Weight(), outcome)
        }
        window.append(DueTerminal(compact: 0), Weight(failureTextBytes: 7), counting: Self.outcome(7, 0))
        #expect(numbers(window) == [1, 2, 3, 4, -2] && window.dueTerminalCount == 5)
        #expect(
            window.countedOutcomes.count == 3 && window.headerFieldBytes == 130
                && window.byteWeight == Weight(failureTextBytes: 8, bodyBytes: 40))
        #expect(window.contains(DueTerminal(counted: 2)) && !window.contains(Self.due(2)))
        window.removeFirst(Weight(failureTextBytes: 1, bodyBytes: 10), counting: nil)
        window.removeFirst(Weight(bodyBytes: 10), counting: shared)
        #expect(window.countedOutcomes == [5: 1, 6: 1, 7: 1] && window.headerFieldBytes == 130)
        let withdrawn = window.withdraw { $0 == DueTerminal(counted: 4) ? (Weight(bodyBytes: 10), shared) : nil }
        #expect(withdrawn == [DueTerminal(counted: 4)])
        #expect(
            window.countedOutcomes == [6: 1, 7: 1] && window.headerFieldBytes == 30 && window.checkInvariants() == [])
        window.removeFirst(Weight(bodyBytes: 10), counting: other)
        window.removeFirst(Weight(failureTextBytes: 7), counting: Self.outcome(7, 0))
        #expect(window.countedOutcomes.capacity == 0 && window.headerFieldBytes == 0 && window.byteWeight == Weight())
    }

    private static func outcome(_ number: Int, _ fieldBytes: Int) -> DeliveryWindow.CountedOutcome {
        DeliveryWindow.CountedOutcome(outcome: Handle(slabIndex: number), fieldBytes: fieldBytes)
    }

    @Test func `a withdrawal in slices sends nothing, keeps the order, and leaves later terminals`() {
        var window = Self.window(size: 3, terminals: 8, sent: 1)
        window.beginWithdrawal()
        #expect(window.isWithdrawing && window.isFull && window.unsentCount == 7)
        // 2 is withdrawn, 3 stays, 4 is withdrawn.
        window.withdrawScannedTerminal(Weight(failureTextBytes: 1, bodyBytes: 10), counting: nil)
        window.keepScannedTerminal()
        window.withdrawScannedTerminal(Weight(failureTextBytes: 1, bodyBytes: 10), counting: nil)
        #expect(
            numbers(window) == [1, 3, -1, -1, 5, 6, 7, 8] && window.unsentCount == 5 && window.dueTerminalCount == 6)
        #expect(window.checkInvariants() == [] && window.popNextToSend() == nil)
        window.append(Self.due(9), Weight(failureTextBytes: 1, bodyBytes: 10))
        window.removeFirst(Weight(failureTextBytes: 1, bodyBytes: 10), counting: nil)
        #expect(numbers(window) == [3, -1, -1, 5, 6, 7, 8, 9] && window.lastAcknowledgedSequence == 1)
        while let due = window.nextToScan {
            #expect((5...8).contains(number(due)), "9 became due later")
            guard number(due) == 6 else {
                window.keepScannedTerminal()
                continue
            }
            window.withdrawScannedTerminal(Weight(failureTextBytes: 1, bodyBytes: 10), counting: nil)
        }
        window.endWithdrawal()
        #expect(numbers(window) == [3, 5, 7, 8, 9] && window.unsentCount == 5 && window.checkInvariants() == [])
        let taken = (0..<3).compactMap { _ in window.popNextToSend() }
        #expect(taken.map { number($0.entry) } == [3, 5, 7] && taken.map(\.sequence) == [2, 3, 4])
    }

    @Test func `a withdrawal checks refused terminals again, and those up to a number`() {
        var window = Self.window(size: 3, terminals: 5, sent: 3)
        window.beginWithdrawal()
        window.withdrawScannedTerminal(Weight(failureTextBytes: 1, bodyBytes: 10), counting: nil)
        window.blockAtUnsent(sequence: 2)
        #expect(numbers(window) == [1, 2, 3, 5] && window.nextToScan == Self.due(2))
        #expect(window.checkInvariants() == [])
        window.endWithdrawal()
        window.beginWithdrawal(upTo: 2)
        #expect(window.nextToScan == Self.due(2))
        window.keepScannedTerminal()
        #expect(window.nextToScan == nil)
        window.endWithdrawal()
        for sequence in [0, 1] as [UInt64] {
            window.beginWithdrawal(upTo: sequence)
            #expect(!window.isWithdrawing)
        }
    }

    @Test func `an ended window has no withdrawal`() {
        var window = Self.window(size: 1, terminals: 4, sent: 1)
        window.beginWithdrawal()
        window.withdrawScannedTerminal(Weight(failureTextBytes: 1, bodyBytes: 10), counting: nil)
        window.end()
        #expect(numbers(window) == [1, 3, 4] && !window.isWithdrawing && window.checkInvariants() == [])
    }

    @Test func `an entry takes four bytes, whatever its kind and number`() {
        #expect(MemoryLayout<DueTerminal>.stride == 4)
        for index in [0, 1, (1 << 29) - 1] {
            #expect(
                DueTerminal(uncounted: Handle(slabIndex: index)).kind == .uncountedTerminal(Handle(slabIndex: index)))
            #expect(DueTerminal(counted: Handle(slabIndex: index)).kind == .countedTerminal(Handle(slabIndex: index)))
            #expect(DueTerminal(compact: Handle(slabIndex: index)).kind == .compactFailure(Handle(slabIndex: index)))
        }
        #expect(DueTerminal.withdrawn.kind == .withdrawn)
    }

    @Test func `an acknowledgement covers each number up to its own, and none that was not sent`() {
        var window = Self.window(terminals: 4, sent: 3)
        #expect(window.highestSentSequence == 3 && window.lastSequence == 3)
        var removed: [Int] = []
        while let due = window.firstTerminal(acknowledgedBy: 2) {
            removed.append(number(due))
            window.removeFirst(Weight(failureTextBytes: 1, bodyBytes: 10), counting: nil)
        }
        #expect(removed == [1, 2])
        #expect(window.lastAcknowledgedSequence == 2 && window.sentCount == 1)
        // A resumed connection may acknowledge terminals before they are repeated.
        window.detach()
        #expect(window.highestSentSequence == 3 && window.lastSequence == 3)
        window.attach(size: 1)
        #expect(window.maximumSentTerminals == 1 && window.highestSentSequence == 3 && window.lastSequence == 2)
        #expect(window.popNextToSend()?.sequence == 3)
    }

    @Test func `a session on the same connection counts on from the sequence number before`() {
        var window = DeliveryWindow(afterSequence: 7)
        window.attach(size: 10)
        window.append(Self.due(1), Weight())
        #expect(window.firstTerminal(acknowledgedBy: 7) == nil)
        #expect(window.popNextToSend()?.sequence == 8)
        // A reply to a blocked socket follows the terminals that the socket accepted.
        window.append(Self.due(2), Weight())
        _ = window.popNextToSend()
        window.blockAtUnsent(sequence: 9)
        #expect(window.lastSequence == 8)
    }

    // MARK: Bounds

    @Test(
        arguments: [
            // Size, due; sent, closed.
            (1, 0, 0, false), (1, 3, 1, true), (4, 3, 3, false), (4, 4, 4, true),
        ] as [(Int, Int, Int, Bool)])
    func `the size bounds the terminals sent, and at it no more work is started`(
        size: Int, due: Int, sent: Int, isClosed: Bool
    ) {
        var window = Self.window(size: size, terminals: due)
        while window.popNextToSend() != nil {}
        #expect(window.sentCount == sent && window.unsentCount == Int(due) - sent)
        #expect(window.isClosed == isClosed)
        #expect(window.checkInvariants() == [])
        window.detach()
        #expect(window.isClosed == isClosed)
    }

    @Test(
        arguments: [
            // Bounds of terminals, outcomes and bytes, with 4 terminals, 2 outcomes and 14 bytes due.
            (4, 2, 15, false), (3, 2, 15, true), (4, 1, 15, true), (4, 2, 14, true),
        ])
    func `a subscriber is overdue with too many terminals, outcomes or bytes of text`(
        terminals: Int, outcomes: Int, bytes: Int, isOverdue: Bool
    ) {
        var window = Self.window(size: 1, terminals: 1, sent: 1)
        for number in 2...3 {
            window.append(Self.due(number), Weight())
            window.replaceLast(with: DueTerminal(counted: Handle(slabIndex: number)), Weight(), Self.outcome(5, 10))
        }
        window.append(DueTerminal(compact: 0), Weight(failureTextBytes: 3), counting: Self.outcome(6, 0))
        let bounds = DeliveryWindow.DueLimits(
            maximumTerminals: terminals, maximumOutcomes: outcomes, maximumBytes: bytes)
        #expect(window.exceedsDueLimits(bounds) == isOverdue)
    }

    // MARK: Slow readers

    @Test func `a watch ends with a stalled subscriber, an acknowledgement or fewer bytes`() {
        var window = Self.window(terminals: 3, sent: 3)
        #expect(!window.needsStallWatch(stalledBytes: 31) && window.needsStallWatch(stalledBytes: 30))
        window.beginStallWatch(5)
        #expect(window.stallWatch?.timerSerial == 5 && !window.needsStallWatch(stalledBytes: 30))
        var stalled = window
        #expect(stalled.endStallWatch(stalledBytes: 30) == true)
        #expect(stalled.stallWatch != nil, "a stalled subscriber is watched again")
        var lighter = window
        #expect(lighter.endStallWatch(stalledBytes: 31) == false)
        #expect(lighter.stallWatch == nil)
        window.removeFirst(Weight(failureTextBytes: 1, bodyBytes: 10), counting: nil)
        #expect(window.endStallWatch(stalledBytes: 20) == false)
        #expect(window.needsStallWatch(stalledBytes: 20))
        stalled.end()
        #expect(stalled.stallWatch == nil)
    }

    @Test func `bodies of any length never overflow the sum, and weigh no less than a stalled subscriber's`() {
        let stalledBytes = CoreLimits().maximumStalledBodyBytesPerClient
        var window = Self.window()
        window.append(Self.due(1), Weight(bodyBytes: .max))
        #expect(window.needsStallWatch(stalledBytes: stalledBytes))
        for number in 2...100 { window.append(Self.due(number), Weight(bodyBytes: .max)) }
        for _ in 1...99 { window.removeFirst(Weight(bodyBytes: .max), counting: nil) }
        #expect(window.byteWeight == Weight(bodyBytes: .max))
        window.removeFirst(Weight(bodyBytes: .max), counting: nil)
        #expect(window.byteWeight == Weight())
    }

    // MARK: Invariants

    @Test(arguments: [1, 2, 3]) func `the invariants hold after each of 5,000 random events`(seed: UInt64) {
        var random = SplitMix64Generator(seed: seed)
        var window = Self.window(size: 5)
        var last = 0
        for _ in 0..<5_000 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0, 1:
                last += 1
                window.append(Self.due(last), Weight(failureTextBytes: 1, bodyBytes: 10))
            case 2, 3: _ = window.popNextToSend()
            case 4:
                let sequence = UInt64.random(in: 0...window.highestSentSequence, using: &random)
                while window.firstTerminal(acknowledgedBy: sequence) != nil {
                    window.removeFirst(Weight(failureTextBytes: 1, bodyBytes: 10), counting: nil)
                }
                #expect(window.lastAcknowledgedSequence >= sequence)
            case 5 where !window.isWithdrawing: window.beginWithdrawal()
            case 6, 7:
                if let due = window.nextToScan, due != .withdrawn, Bool.random(using: &random) {
                    window.withdrawScannedTerminal(Weight(failureTextBytes: 1, bodyBytes: 10), counting: nil)
                } else if window.nextToScan != nil {
                    window.keepScannedTerminal()
                } else {
                    window.endWithdrawal()
                }
            case 8:
                window.blockAtUnsent(
                    sequence: window.lastAcknowledgedSequence + UInt64.random(in: 0...5, using: &random))
            default:
                if window.phase == .detached {
                    window.attach(size: Int.random(in: 1...6, using: &random))
                } else if !window.unblock() {
                    window.detach()
                }
            }
            #expect(window.checkInvariants() == [])
            #expect(
                window.byteWeight
                    == Weight(failureTextBytes: window.dueTerminalCount, bodyBytes: 10 * window.dueTerminalCount))
        }
    }
}
