import Testing

@testable import EarshotCore

extension DeliveryWindow {
    /// Withdraws terminals without slices.
    ///
    /// - Parameter weigh: returns the weight of a terminal to withdraw, and its outcome if it counts; nil to keep it.
    /// - Returns: the withdrawn terminals.
    fileprivate mutating func withdraw(_ weigh: (DueTerminal) -> (Weight, CountedOutcome?)?) -> [DueTerminal] {
        beginWithdrawal()
        var withdrawn: [DueTerminal] = []
        while let due = nextToCheck {
            guard due != .withdrawn, let (weight, outcome) = weigh(due) else {
                keepNext()
                continue
            }
            withdrawn.append(due)
            withdrawNext(weight, counting: outcome)
        }
        endWithdrawal()
        return withdrawn
    }
}

/// The delivery window in isolation: each event in each phase of the window and of a terminal, its bounds and its
/// watch.
struct DeliveryWindowTests {
    private typealias Weight = DeliveryWindow.Weight

    private static let phases: [DeliveryWindow.Phase] = [.detached, .open, .blocked, .ended]

    private static func due(_ number: Int) -> DueTerminal { DueTerminal(uncounted: Handle(index: number)) }

    /// An open window with terminals 1, 2, … due, each of 1 byte of text and 10 of body.
    private static func window(size: Int = 10, terminals: Int = 0, sent: Int = 0) -> DeliveryWindow {
        var window = DeliveryWindow()
        window.attach(size: size)
        for number in 0..<terminals { window.append(due(number + 1), Weight(texts: 1, bodies: 10)) }
        for _ in 0..<sent { _ = window.take() }
        return window
    }

    private static func window(in phase: DeliveryWindow.Phase) -> DeliveryWindow {
        switch phase {
        case .detached: return DeliveryWindow()
        case .open: return window(terminals: 2, sent: 2)
        case .blocked:
            var window = window(terminals: 2, sent: 2)
            window.refuse(2)
            return window
        case .ended:
            var window = window(terminals: 2, sent: 2)
            window.end()
            return window
        }
    }

    private func numbers(_ window: DeliveryWindow) -> [Int] { window.entries.map { number($0) } }

    /// The interest of a terminal; -1 for a withdrawn one, -2 for an owed failure.
    private func number(_ entry: DueTerminal) -> Int {
        switch entry.kind {
        case .uncounted(let interest), .counted(let interest): interest.index
        case .compact: -2
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
            case .refuse: window.refuse(1)
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
        #expect((window.take() != nil) == (phase == .open))
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
            for number in [0, 1, 2] { window.append(due(number), Weight(texts: 1, bodies: 10)) }
            for _ in 0..<2 { _ = window.take() }
            window.detach()
            window.attach(size: 10)
            _ = window.take()
            _ = window.withdraw { $0 == due(1) ? (Weight(texts: 1, bodies: 10), nil) : nil }
            return window
        }
    }

    enum Step: CaseIterable {
        case take, refuse, removeFirst, withdraw, detach
    }

    private static func apply(_ step: Step, to window: inout DeliveryWindow) -> [DueTerminal] {
        switch step {
        case .take: return window.take().map { [$0.entry] } ?? []
        case .refuse: window.refuse(1)
        case .removeFirst: window.removeFirst(Weight(texts: 1, bodies: 10), counting: nil)
        case .withdraw: return window.withdraw { $0 == due(1) ? (Weight(texts: 1, bodies: 10), nil) : nil }
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
        #expect([window.sent, window.numberedCount, Int(window.acknowledged)] == expected.2)
        let left = expected.1.count { $0 >= 0 }
        #expect(window.count == left)
        #expect(window.weight == Weight(texts: left, bodies: 10 * left))
        #expect(window.checkInvariants() == [])
    }

    @Test func `an outcome that waiting terminals share counts once, until the last of them has left`() {
        var window = Self.window(size: 1, terminals: 1, sent: 1)
        let (shared, other) = (Self.outcome(5, 100), Self.outcome(6, 30))
        for (number, outcome) in [(2, shared), (3, other), (4, shared)] {
            window.append(Self.due(number), Weight(bodies: 10))
            window.countLast(as: DueTerminal(counted: Handle(index: number)), Weight(), outcome)
        }
        window.append(DueTerminal(compact: 0), Weight(texts: 7), counting: Self.outcome(7, 0))
        #expect(numbers(window) == [1, 2, 3, 4, -2] && window.count == 5)
        #expect(window.outcomes.count == 3 && window.fieldBytes == 130 && window.weight == Weight(texts: 8, bodies: 40))
        #expect(window.contains(DueTerminal(counted: 2)) && !window.contains(Self.due(2)))
        window.removeFirst(Weight(texts: 1, bodies: 10), counting: nil)
        window.removeFirst(Weight(bodies: 10), counting: shared)
        #expect(window.outcomes == [5: 1, 6: 1, 7: 1] && window.fieldBytes == 130)
        let withdrawn = window.withdraw { $0 == DueTerminal(counted: 4) ? (Weight(bodies: 10), shared) : nil }
        #expect(withdrawn == [DueTerminal(counted: 4)])
        #expect(window.outcomes == [6: 1, 7: 1] && window.fieldBytes == 30 && window.checkInvariants() == [])
        window.removeFirst(Weight(bodies: 10), counting: other)
        window.removeFirst(Weight(texts: 7), counting: Self.outcome(7, 0))
        #expect(window.outcomes.capacity == 0 && window.fieldBytes == 0 && window.weight == Weight())
    }

    private static func outcome(_ number: Int, _ fieldBytes: Int) -> DeliveryWindow.CountedOutcome {
        DeliveryWindow.CountedOutcome(outcome: Handle(index: number), fieldBytes: fieldBytes)
    }

    @Test func `a withdrawal in slices sends nothing, keeps the order, and leaves later terminals`() {
        var window = Self.window(size: 3, terminals: 8, sent: 1)
        window.beginWithdrawal()
        #expect(window.isWithdrawing && window.isFull && window.waiting == 7)
        // 2 is withdrawn, 3 stays, 4 is withdrawn.
        window.withdrawNext(Weight(texts: 1, bodies: 10), counting: nil)
        window.keepNext()
        window.withdrawNext(Weight(texts: 1, bodies: 10), counting: nil)
        #expect(numbers(window) == [1, 3, -1, -1, 5, 6, 7, 8] && window.waiting == 5 && window.count == 6)
        #expect(window.checkInvariants() == [] && window.take() == nil)
        window.append(Self.due(9), Weight(texts: 1, bodies: 10))
        window.removeFirst(Weight(texts: 1, bodies: 10), counting: nil)
        #expect(numbers(window) == [3, -1, -1, 5, 6, 7, 8, 9] && window.acknowledged == 1)
        while let due = window.nextToCheck {
            #expect((5...8).contains(number(due)), "9 became due later")
            guard number(due) == 6 else {
                window.keepNext()
                continue
            }
            window.withdrawNext(Weight(texts: 1, bodies: 10), counting: nil)
        }
        window.endWithdrawal()
        #expect(numbers(window) == [3, 5, 7, 8, 9] && window.waiting == 5 && window.checkInvariants() == [])
        let taken = (0..<3).compactMap { _ in window.take() }
        #expect(taken.map { number($0.entry) } == [3, 5, 7] && taken.map(\.sequence) == [2, 3, 4])
    }

    @Test func `a withdrawal checks refused terminals again, and those up to a number`() {
        var window = Self.window(size: 3, terminals: 5, sent: 3)
        window.beginWithdrawal()
        window.withdrawNext(Weight(texts: 1, bodies: 10), counting: nil)
        window.refuse(2)
        #expect(numbers(window) == [1, 2, 3, 5] && window.nextToCheck == Self.due(2))
        #expect(window.checkInvariants() == [])
        window.endWithdrawal()
        window.beginWithdrawal(upTo: 2)
        #expect(window.nextToCheck == Self.due(2))
        window.keepNext()
        #expect(window.nextToCheck == nil)
        window.endWithdrawal()
        for sequence in [0, 1] as [UInt64] {
            window.beginWithdrawal(upTo: sequence)
            #expect(!window.isWithdrawing)
        }
    }

    @Test func `an ended window has no withdrawal`() {
        var window = Self.window(size: 1, terminals: 4, sent: 1)
        window.beginWithdrawal()
        window.withdrawNext(Weight(texts: 1, bodies: 10), counting: nil)
        window.end()
        #expect(numbers(window) == [1, 3, 4] && !window.isWithdrawing && window.checkInvariants() == [])
    }

    @Test func `an entry takes four bytes, whatever its kind and number`() {
        #expect(MemoryLayout<DueTerminal>.stride == 4)
        for index in [0, 1, (1 << 29) - 1] {
            #expect(DueTerminal(uncounted: Handle(index: index)).kind == .uncounted(Handle(index: index)))
            #expect(DueTerminal(counted: Handle(index: index)).kind == .counted(Handle(index: index)))
            #expect(DueTerminal(compact: Handle(index: index)).kind == .compact(Handle(index: index)))
        }
        #expect(DueTerminal.withdrawn.kind == .withdrawn)
    }

    @Test func `an acknowledgement covers each number up to its own, and none that was not sent`() {
        var window = Self.window(terminals: 4, sent: 3)
        #expect(window.lastReceived == 3 && window.lastSequence == 3)
        var removed: [Int] = []
        while let due = window.first(upTo: 2) {
            removed.append(number(due))
            window.removeFirst(Weight(texts: 1, bodies: 10), counting: nil)
        }
        #expect(removed == [1, 2])
        #expect(window.acknowledged == 2 && window.sent == 1)
        // A resumed connection may acknowledge terminals before they are repeated.
        window.detach()
        #expect(window.lastReceived == 3 && window.lastSequence == 3)
        window.attach(size: 1)
        #expect(window.size == 1 && window.lastReceived == 3 && window.lastSequence == 2)
        #expect(window.take()?.sequence == 3)
    }

    @Test func `a session on the same connection counts on from the sequence number before`() {
        var window = DeliveryWindow(after: 7)
        window.attach(size: 10)
        window.append(Self.due(1), Weight())
        #expect(window.first(upTo: 7) == nil)
        #expect(window.take()?.sequence == 8)
        // A reply to a blocked socket follows the terminals that the socket accepted.
        window.append(Self.due(2), Weight())
        _ = window.take()
        window.refuse(9)
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
        while window.take() != nil {}
        #expect(window.sent == sent && window.waiting == Int(due) - sent)
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
            window.countLast(as: DueTerminal(counted: Handle(index: number)), Weight(), Self.outcome(5, 10))
        }
        window.append(DueTerminal(compact: 0), Weight(texts: 3), counting: Self.outcome(6, 0))
        let bounds = DeliveryWindow.Bounds(terminals: terminals, outcomes: outcomes, bytes: bytes)
        #expect(window.isOverdue(bounds) == isOverdue)
    }

    // MARK: Slow readers

    @Test func `a watch ends with a stalled subscriber, an acknowledgement or fewer bytes`() {
        var window = Self.window(terminals: 3, sent: 3)
        #expect(!window.isUnwatched(stalledBytes: 31) && window.isUnwatched(stalledBytes: 30))
        window.beginWatch(5)
        #expect(window.watch?.serial == 5 && !window.isUnwatched(stalledBytes: 30))
        var stalled = window
        #expect(stalled.endWatch(stalledBytes: 30) == true)
        #expect(stalled.watch != nil, "a stalled subscriber is watched again")
        var lighter = window
        #expect(lighter.endWatch(stalledBytes: 31) == false)
        #expect(lighter.watch == nil)
        window.removeFirst(Weight(texts: 1, bodies: 10), counting: nil)
        #expect(window.endWatch(stalledBytes: 20) == false)
        #expect(window.isUnwatched(stalledBytes: 20))
        stalled.end()
        #expect(stalled.watch == nil)
    }

    @Test func `bodies of any length never overflow the sum, and weigh no less than a stalled subscriber's`() {
        let stalledBytes = CoreLimits().stalledBytes
        var window = Self.window()
        window.append(Self.due(1), Weight(bodies: .max))
        #expect(window.isUnwatched(stalledBytes: stalledBytes))
        for number in 2...100 { window.append(Self.due(number), Weight(bodies: .max)) }
        for _ in 1...99 { window.removeFirst(Weight(bodies: .max), counting: nil) }
        #expect(window.weight == Weight(bodies: .max))
        window.removeFirst(Weight(bodies: .max), counting: nil)
        #expect(window.weight == Weight())
    }

    // MARK: Invariants

    @Test(arguments: [1, 2, 3]) func `the invariants hold after each of 5,000 random events`(seed: UInt64) {
        var random = SplitMix(seed: seed)
        var window = Self.window(size: 5)
        var last = 0
        for _ in 0..<5_000 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0, 1:
                last += 1
                window.append(Self.due(last), Weight(texts: 1, bodies: 10))
            case 2, 3: _ = window.take()
            case 4:
                let sequence = UInt64.random(in: 0...window.lastReceived, using: &random)
                while window.first(upTo: sequence) != nil {
                    window.removeFirst(Weight(texts: 1, bodies: 10), counting: nil)
                }
                #expect(window.acknowledged >= sequence)
            case 5 where !window.isWithdrawing: window.beginWithdrawal()
            case 6, 7:
                if let due = window.nextToCheck, due != .withdrawn, Bool.random(using: &random) {
                    window.withdrawNext(Weight(texts: 1, bodies: 10), counting: nil)
                } else if window.nextToCheck != nil {
                    window.keepNext()
                } else {
                    window.endWithdrawal()
                }
            case 8: window.refuse(window.acknowledged + UInt64.random(in: 0...5, using: &random))
            default:
                if window.phase == .detached {
                    window.attach(size: Int.random(in: 1...6, using: &random))
                } else if !window.unblock() {
                    window.detach()
                }
            }
            #expect(window.checkInvariants() == [])
            #expect(window.weight == Weight(texts: window.count, bodies: 10 * window.count))
        }
    }
}
