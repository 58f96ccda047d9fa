#ifndef BACKGROUND_H
#define BACKGROUND_H

/* Get ready for that, while files may be opened. */
void background_ready(void);

/* Go to the background. The parent waits until background_serves(), or the end of this process, whose exit status becomes its own.
 * Returns the descriptor to tell it by. */
int background_start(void);
void background_serves(int fd);

#endif
