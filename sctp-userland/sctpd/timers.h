/* usrsctp's timers, exact to the millisecond. (Its own are a list that a thread walks every 10 ms.) */
#ifndef TIMERS_H
#define TIMERS_H

/* Run what is due; return the time until the next one in ms, -1: there is none. */
int timers_run(void);

#endif
