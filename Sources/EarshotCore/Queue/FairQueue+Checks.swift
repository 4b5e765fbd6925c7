internal import EarshotWire

/// Checks of the queue's invariants, for the audit in tests and simulations.
extension FairQueue {
    private typealias Check = (Bool, @autoclosure () -> String) -> Void

    /// Returns a sentence for each violated invariant. O(queued interests).
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        checkInterests(check)
        checkLanes(check)
        checkRootQueues(check)
        checkPrincipalQueues(check)
        checkTurns(check)
        checkParkings(check)
        check(
            principalQueueHandles.count == principalQueues.count && rootQueueHandles.count == rootQueues.count
                && laneHandles.count == lanes.count && handlerQueueHandles.count == handlerQueues.count,
            "12: a key of the queue has no record")
        return faults
    }

    private func checkInterests(_ check: Check) {
        var counts: [Handle<PrincipalQueue>: PriorityClassTable<Int>] = [:]
        var poolCounts: [Handle<WorkerPool>: Int] = [:]
        var sum = 0
        for leaf in handlerQueues.indices {
            let key = handlerQueues[leaf].key
            guard lanes.contains(key.lane) else {
                check(false, "4: handler \(key.handler) is in no lane")
                continue
            }
            let members = interestChains.members(of: handlerQueues[leaf].interests)
            check(!members.isEmpty, "12: handler \(key.handler) has no queued interest")
            check(
                members.allSatisfy { handlerQueueOfInterest[$0].wrappedValue == leaf },
                "4: handler \(key.handler) has another's interest")
            let line = principalQueue(of: key.lane)
            counts[line, default: PriorityClassTable(repeating: 0)][lanes[key.lane].priority] += members.count
            poolCounts[principalQueues[line].key.pool, default: 0] += members.count
            sum += members.count
            check(
                handlerQueueHandles.findRecord(withHash: key.hash) { handlerQueues[$0].key == key } == leaf,
                "4: a handler has another number")
        }
        check(
            coolDownWaits.hasConsistentWaiters { interest, scope in
                guard contains(interest), let leaf = handlerQueueOfInterest[interest].wrappedValue else { return false }
                return lanes[handlerQueues[leaf].key.lane].key.scope == scope
            }, "4: an interest that is not queued at its origin waits for its cool-down")
        check(sum == count, "4: \(sum) interests are queued, not \(count)")
        check(
            handlerQueueOfInterest.handles.count { contains($0) } == count,
            "4: \(count) interests are queued, others have a place")
        for line in principalQueues.indices {
            check(
                counts[line] == principalQueues[line].interestCounts,
                "4: the counts of line \(line) are \(principalQueues[line].interestCounts)")
        }
        check(
            turnsByPool.handles.allSatisfy { turnsByPool[$0].queuedInterestCount == poolCounts[$0, default: 0] },
            "4: the counts by pool are \(poolCounts)")
    }

    private func checkLanes(_ check: Check) {
        var counts: [Handle<QueueLane>: Int] = [:]
        for leaf in handlerQueues.indices { counts[handlerQueues[leaf].key.lane, default: 0] += 1 }
        for lane in lanes.indices {
            let record = lanes[lane]
            let usual = handlerQueueChains.members(of: record.rotatingHandlerQueues)
            let replacements = handlerQueueChains.members(of: record.freshReplacementQueues)
            check(
                usual.allSatisfy { handlerQueues[$0].key.lane == lane && !handlerQueues[$0].isFreshReplacement }
                    && replacements.allSatisfy {
                        handlerQueues[$0].key.lane == lane && handlerQueues[$0].isFreshReplacement
                    },
                "4: lane \(lane) has a wrong handler")
            let count = counts[lane, default: 0]
            check(usual.count + replacements.count == count, "4: lane \(lane) has turns for some of \(count) handlers")
            check(count > 0, "12: lane \(lane) is empty")
            check(
                laneHandles.findRecord(withHash: record.key.hash) { lanes[$0].key == record.key } == lane,
                "4: a lane has another number")
            check(
                rootQueues.contains(record.key.rootQueue)
                    && rootQueues[record.key.rootQueue].key.priority == record.priority,
                "7: lane \(lane) has no root of its class")
        }
    }

    private func checkRootQueues(_ check: Check) {
        var counts: [Handle<RootQueue>: Int] = [:]
        for lane in lanes.indices { counts[lanes[lane].key.rootQueue, default: 0] += 1 }
        var rotating = 0
        for number in rootQueues.indices {
            let root = rootQueues[number]
            let count = counts[number, default: 0]
            check(root.laneCount == count && count > 0, "12: root \(number) counts \(root.laneCount) of \(count) lanes")
            check(
                rootQueueHandles.findRecord(withHash: root.key.hash) { rootQueues[$0].key == root.key } == number,
                "4: a root has another number")
            check(
                root.isInLineRotation != root.lanes.isEmpty,
                "4: root \(number) has lanes and no turns, or turns and no lanes")
            let members = laneChains.members(of: root.lanes)
            rotating += members.count
            let isRotating = members.allSatisfy { lane in
                if lanes[lane].key.rootQueue == number, case .rotating = lanes[lane].phase { true } else { false }
            }
            check(isRotating, "4: root \(number) has a wrong lane")
        }
        let isRotating = lanes.indices.count { if case .rotating = lanes[$0].phase { true } else { false } }
        check(rotating == isRotating, "4: \(isRotating) lanes rotate, \(rotating) have turns")
    }

    private func checkPrincipalQueues(_ check: Check) {
        var counts: [Handle<PrincipalQueue>: Int] = [:]
        for root in rootQueues.indices { counts[rootQueues[root].key.principalQueue, default: 0] += 1 }
        var turning = 0
        for number in principalQueues.indices {
            let line = principalQueues[number]
            let count = counts[number, default: 0]
            check(
                line.rootQueueCount == count && count > 0,
                "12: line \(number) counts \(line.rootQueueCount) of \(count) roots")
            check(
                principalQueueHandles.findRecord(withHash: line.key.hash) { principalQueues[$0].key == line.key }
                    == number, "4: a line has another number")
            check(
                line.lastTurnSerial <= turnsByPool[line.key.pool].lastTurnSerial,
                "4: line \(number) has a turn of the future")
            var rotating = 0
            for priority in ClassSchedule.classes {
                let members = rootQueueChains.members(of: line.rootRotationsByClass[priority])
                rotating += members.count
                check(
                    members.allSatisfy {
                        rootQueues[$0].isInLineRotation && rootQueues[$0].key.principalQueue == number
                            && rootQueues[$0].key.priority == priority
                    }, "4: line \(number) has a wrong root")
            }
            check(
                line.rotatingRootCount == rotating,
                "4: line \(number) counts \(line.rotatingRootCount) of \(rotating) roots with turns")
            turning += rotating
        }
        check(turning == rootQueues.indices.count { rootQueues[$0].isInLineRotation }, "4: a root has no turns")
    }

    private func checkTurns(_ check: Check) {
        for pool in turnsByPool.handles {
            var tags: [Handle<PrincipalQueue>: UInt64] = [:]
            var highTags: [Handle<PrincipalQueue>: UInt64] = [:]
            for line in principalQueues.indices where principalQueues[line].key.pool == pool {
                if principalQueues[line].rotatingRootCount > 0 { tags[line] = principalQueues[line].lastTurnSerial }
                if !principalQueues[line].rootRotationsByClass[.high].isEmpty {
                    highTags[line] = principalQueues[line].lastTurnSerial
                }
            }
            let faults =
                turnsByPool[pool].principalTurns.checkInvariants(tags: tags)
                + turnsByPool[pool].highPriorityTurns.checkInvariants(tags: highTags)
            for fault in faults { check(false, fault) }
            check(Set(tags.values).count == tags.count, "4: two lines of pool \(pool) have the same turn")
        }
    }

    private func checkParkings(_ check: Check) {
        var count = 0
        let faults = parkedLanes.checkInvariants(members: laneChains.members) { lane, key, resource in
            count += 1
            return lanes.contains(lane) && lanes[lane].phase == .parked(resource)
                && principalQueue(of: lane) == key.principalQueue
                && lanes[lane].priority == key.priority
        }
        for fault in faults { check(false, fault) }
        let isParked = lanes.indices.count { if case .parked = lanes[$0].phase { true } else { false } }
        check(count == isParked, "4: \(isParked) lanes are parked, \(count) wait")
    }
}
